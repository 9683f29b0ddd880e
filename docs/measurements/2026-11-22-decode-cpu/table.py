#!/usr/bin/env python3
"""Predicted beside measured, over all runs: python3 table.py HEADROOM CALIBRATION MODEL=RESULTS...

Prints a line for each model and one for all: medians of |predicted / measured - 1| over batches, of the
steps as the clock had them and of what they take less other programs' turns on the cores; how many of the
latter lie in the 90 % interval; and the same for what a roofline of the two peaks would say.
"""

import json
import statistics
import subprocess
import sys


def answer(binary, calibration, model, results):
    done = subprocess.run([binary, "bench", "decode", model, "--results", results, "--calibration", calibration,
                           "--json"], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 5):
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def main():
    binary, calibration, *named = sys.argv[1:]
    rows = []
    print("model                        batches    clock    undisturbed  in interval  roofline")
    for name in named:
        model, results = name.split("=")
        found = answer(binary, calibration, model, results)
        runs = {run["batch"]: run for run in found["measured"]["runs"]}
        mine = []
        for step, predicted in zip(found["steps"], found["predicted_steps"]["steps"]):
            alone = runs[step["batch"]]["undisturbed_ms"]
            said = predicted["step_ms"]
            mine.append((abs(said["expected"] / step["step_ms"]["expected"] - 1), abs(said["expected"] / alone - 1),
                         said["low"] <= alone <= said["high"], abs(step["roofline_ms"] / alone - 1)))
        show(model, mine)
        rows += mine
    show("all", rows)


def show(name, rows):
    clock, alone, _, roofline = (100 * statistics.median(column) for column in zip(*rows))
    inside = sum(row[2] for row in rows)
    print(f"{name:<28} {len(rows):>7}  {clock:>5.1f} %  {alone:>11.1f} %  {inside:>5} of {len(rows):<3}  {roofline:>5.0f} %")


if __name__ == "__main__":
    main()
