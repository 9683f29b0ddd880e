#!/usr/bin/env python3
"""The clauses that are asked of `fit`'s memory figures, each beside what `fit --against` answers.

Usage: audit.py AGAINST.json MEASURED.csv [--misses]

AGAINST.json is `headroom fit --against MEASURED.csv --json`. With --misses the rows behind the clauses that are
further off than what was asked of their median or, where that is asked, their 90th percentile.
"""

import argparse
import csv
import json
import math
import statistics


def percentile(values, share):
    """The least value that so many of them do not exceed."""
    values = sorted(values)
    return values[max(0, math.ceil(share * len(values)) - 1)]


def is_fsdp(row):
    return row["source"] == "fms-acceleration" and row["n_gpus"] != "1" and row["quality"] == "A"


def is_megatron(row):
    return row["source"] == "megatron-golden"


def has_experts(row):
    return row["experts"] not in ("none", "")


def is_dense(row):
    return is_megatron(row) and not has_experts(row) and row["quality"] == "A" and row["recipe_live"] == "true"


def is_mixture(row):
    return is_megatron(row) and has_experts(row) and row["quality"] in "AB"


def is_live_mixture(row):
    return is_mixture(row) and row["quality"] == "A" and row["recipe_live"] == "true"


def is_torchtitan(row):
    return row["source"] == "torchtitan"


def is_exact_torchtitan(row):
    return is_torchtitan(row) and row["quality"] == "A"


# What is asked: its name, the rows, the figure, and what may not be exceeded of the median and the 90th percentile of errors.
CLAUSES = (
    ("FSDP (fms-acceleration)", is_fsdp, "peak_allocated", 1, 3),
    ("FSDP (fms-acceleration)", is_fsdp, "after_step", 1, 3),
    ("Megatron-LM, dense", is_dense, "after_step", 0.2, None),
    ("Megatron-LM, dense", is_dense, "peak_allocated", 1.5, 7),
    ("torchtitan, quality A", is_exact_torchtitan, "peak_reserved", 3, None),
    ("torchtitan, quality A and B", is_torchtitan, "peak_reserved", 3, None),
)
LEAST_SUPPORTED = 0.9
COVERAGE = (0.85, 0.97)
MOST_WIDTHS = 8  # of the median error, in the median


def errors_of(rows):
    return [abs(row["error_pct"]) for row in rows if row["status"] == "ok"]


def limit(value):
    return "" if value is None else f"<= {value:g}"


def verdict(is_met):
    return "met" if is_met else "**missed**"


def show_errors(rows_of):
    print("| clause | figure | rows | modelled | median % | asked | p90 % | asked | worst % | |\n|" + "---|" * 10)
    for name, choose, metric, median, p90 in CLAUSES:
        rows = rows_of(choose, metric)
        errors = errors_of(rows)
        found = statistics.median(errors), percentile(errors, 0.9)
        is_met = found[0] <= median and (p90 is None or found[1] <= p90)
        print(f"| {name} | {metric} | {len(rows)} | {len(errors)} | {found[0]:.3f} | {limit(median)} | {found[1]:.3f} "
              f"| {limit(p90)} | {max(errors):.3f} | {verdict(is_met)} |")


def show_supported(rows_of):
    rows = rows_of(is_dense, "peak_allocated")
    modelled = len(errors_of(rows))
    share = modelled / len(rows)
    print(f"\nOf {len(rows)} dense rows of Megatron-LM's (quality A, live) {modelled} are modelled: {100 * share:.0f} %, asked "
          f"{100 * LEAST_SUPPORTED:.0f}: {verdict(share >= LEAST_SUPPORTED)}.")


def show_intervals(rows_of):
    print("\n| mixtures | rows | with an interval | inside | % | asked | width / median error | asked | |\n|" + "---|" * 9)
    for name, choose in (("quality A, live", is_live_mixture), ("quality A and B", is_mixture)):
        rows = rows_of(choose, "peak_allocated")
        given = [row for row in rows if row["status"] == "ok" and "interval_bytes" in row]
        inside = sum(row["interval_bytes"]["low"] <= row["measured_bytes"] <= row["interval_bytes"]["high"] for row in given)
        width = statistics.median(row["interval_bytes"]["high"] - row["interval_bytes"]["low"] for row in given)
        error = statistics.median(abs(row["predicted_bytes"] - row["measured_bytes"]) for row in given)
        share = inside / len(given)
        is_met = COVERAGE[0] <= share <= COVERAGE[1] and width <= MOST_WIDTHS * error
        print(f"| {name} | {len(rows)} | {len(given)} | {inside} | {100 * share:.0f} | {100 * COVERAGE[0]:.0f} to "
              f"{100 * COVERAGE[1]:.0f} | {width / error:.1f} | <= {MOST_WIDTHS} | {verdict(is_met)} |")


def show_rest(rows, measured):
    """Sources that no clause names, and of one GPU."""
    groups = {}
    for row in rows:
        own = measured[row["id"]]
        if any(choose(own) for _, choose, *_ in CLAUSES) or is_megatron(own):
            continue
        groups.setdefault((own["source"], row["metric"]), []).append(row)
    print("\n| the rest | figure | figures | modelled | median % | p90 % | worst % | row |\n|" + "---|" * 8)
    for (source, metric), of_group in sorted(groups.items()):
        done = [row for row in of_group if row["status"] == "ok"]
        if not done:
            print(f"| {source} | {metric} | {len(of_group)} | 0 |  |  |  |  |")
            continue
        errors = errors_of(done)
        worst = max(done, key=lambda row: abs(row["error_pct"]))
        print(f"| {source} | {metric} | {len(of_group)} | {len(done)} | {statistics.median(errors):.3f} | "
              f"{percentile(errors, 0.9):.3f} | {max(errors):.3f} | {worst['id']} |")


def show_misses(rows_of, measured):
    print("\n| row | clause | figure | error % | setting |\n|" + "---|" * 5)
    for name, choose, metric, median, p90 in CLAUSES:
        for row in rows_of(choose, metric):
            own = measured[row["id"]]
            setting = f"{own['model'][:40]}, {own['method']}, {own['parallelism'][:60]}"
            if row["status"] != "ok":
                print(f"| {row['id']} | {name} | {metric} | {row['reason']} | {setting} |")
            elif abs(row["error_pct"]) > (p90 or median):
                print(f"| {row['id']} | {name} | {metric} | {row['error_pct']:+.3f} | {setting} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("against")
    parser.add_argument("measured")
    parser.add_argument("--misses", action="store_true")
    given = parser.parse_args()
    with open(given.against, encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    with open(given.measured, encoding="utf-8") as file:
        measured = {row["id"]: row for row in csv.DictReader(file)}

    def rows_of(choose, metric):
        return [row for row in rows if row["metric"] == metric and choose(measured[row["id"]])]

    show_errors(rows_of)
    show_supported(rows_of)
    show_intervals(rows_of)
    show_rest(rows, measured)
    if given.misses:
        show_misses(rows_of, measured)


if __name__ == "__main__":
    main()
