#!/usr/bin/env python3
"""Fits what src/batch/step_law.h assumes of a server's residual: amplitude, reach and noise.

    python3 tools/batch/fit_law.py ../shared/data/performance/aiconfigurator/silicon_sample.csv

Each curve is a server at one setting, its mean time per token by the number of requests in flight.
Of each, the smallest batch, the largest and one between are given to the law, and the others judge
it: the parameters are those under which they are likeliest (Student's t with 4 degrees of freedom,
since a few of the servers misbehave), then amplitude and noise are multiplied until 90 % of them
are inside the 90 % interval. Needs numpy.
"""
import argparse
import collections
import csv
import itertools
import math

import numpy as np

NINETY_PERCENT = 1.645
DENSE = ("Qwen/Qwen3-32B", "meta-llama/Llama-3.1-70B")
SETTING = ("backend", "backend_version", "model_path", "system", "precision", "isl", "osl", "tp_size",
           "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")


def curves(path):
    """{setting: {batch: ms}} of one-pool servers with four batches at least."""
    grouped = collections.defaultdict(lambda: collections.defaultdict(list))
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["mode"] != "agg" or row["model_path"] not in DENSE:
                continue
            grouped[tuple(row[name] for name in SETTING)][int(row["batch_size"])].append(
                float(row["silicon_tpot_ms"]))
    return [{batch: float(np.median(times)) for batch, times in curve.items()}
            for _, curve in sorted(grouped.items()) if len(curve) >= 4]


def predict(batches, times, batch, amplitude, reach, noise):
    """Mean and relative standard deviation by universal kriging of relative errors."""
    place = np.log2(np.array(batches, float))
    trend = np.stack([np.ones(len(batches)), np.array(batches, float)], 1) / np.array(times)[:, None]
    covariance = amplitude**2 * np.exp(-np.abs(place[:, None] - place) / reach)
    inverse = np.linalg.inv(covariance + noise**2 * np.eye(len(batches)))
    normal = trend.T @ inverse @ trend
    line = np.linalg.solve(normal, trend.T @ inverse @ np.ones(len(batches)))
    near = amplitude**2 * np.exp(-np.abs(place - math.log2(batch)) / reach)
    base = line[0] + line[1] * batch
    mean = base * (1 + near @ inverse @ (1 - trend @ line))
    u = np.array([1, batch]) / base - trend.T @ inverse @ near
    variance = amplitude**2 + noise**2 - near @ inverse @ near + u @ np.linalg.solve(normal, u)
    return mean, math.sqrt(max(variance, 0))


def three_of(curve):
    batches = sorted(curve)
    middle = math.log(batches[0] * batches[-1]) / 2 + math.log(2)
    between = min(batches[1:-1], key=lambda batch: abs(math.log(batch) - middle))
    return [batches[0], between, batches[-1]]


def judged(all_curves, parameters):
    """(relative error, standard deviation) of every point that was not given."""
    rows = []
    for curve in all_curves:
        given = three_of(curve)
        for batch in sorted(set(curve) - set(given)):
            mean, deviation = predict(given, [curve[b] for b in given], batch, *parameters)
            rows.append((mean / curve[batch] - 1, deviation))
    return np.array(rows)


def unlikeliness(rows):
    error, deviation = rows.T
    return np.sum(np.log(deviation) + 2.5 * np.log1p(error**2 / deviation**2 / 4))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("csv")
    all_curves = curves(parser.parse_args().csv)
    grid = itertools.product([.02, .03, .04, .05, .06, .08, .1], [.5, 1, 1.5, 2, 4],
                             [.005, .01, .02])
    best = min(grid, key=lambda parameters: unlikeliness(judged(all_curves, parameters)))
    error, deviation = np.abs(judged(all_curves, best)).T
    scale = np.percentile(error / (NINETY_PERCENT * deviation), 90)
    final = (best[0] * scale, best[1], best[2] * scale)
    error, deviation = np.abs(judged(all_curves, final)).T
    print(f"{len(all_curves)} curves, {len(error)} points judged")
    print("likeliest: amplitude %.3f, reach %.1f doublings, noise %.4f" % best)
    print("widened by %.2f: amplitude %.4f, noise %.4f" % (scale, final[0], final[2]))
    print("error: median %.2f %%, p90 %.2f %%; inside %.0f %%; width %.1f median errors" % (
        100 * np.median(error), 100 * np.percentile(error, 90),
        100 * np.mean(error < NINETY_PERCENT * deviation),
        2 * NINETY_PERCENT * np.median(deviation) / np.median(error)))


if __name__ == "__main__":
    main()
