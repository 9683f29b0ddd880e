#!/usr/bin/env python3
"""What `fit --against` answers, by source and quality: counts, errors, and how true its intervals are.

Usage: tables.py AGAINST.json MEASURED.csv
"""

import collections
import csv
import json
import math
import statistics
import sys


def percentile(values, share):
    values = sorted(values)
    return values[max(0, math.ceil(share * len(values)) - 1)]


def group_of(row):
    source = row["source"]
    if source == "fms-acceleration":
        return f"{source}, {'one GPU' if row['n_gpus'] == '1' else 'several'}"
    if source == "megatron-golden":
        kind = "dense" if row["experts"] in ("none", "") else "mixtures"
        return f"{source}, {kind}{', live' if row['recipe_live'] == 'true' else ''}"
    return source


def cells(rows):
    supported = [row for row in rows if row["status"] == "ok"]
    errors = [abs(row["error_pct"]) for row in supported]
    line = [str(len(rows)), str(len(supported))]
    line += [f"{percentile(errors, 0.5):.3f}", f"{percentile(errors, 0.9):.3f}",
             f"{max(errors):.3f}"] if errors else ["", "", ""]
    given = [row for row in supported if "interval_bytes" in row]
    if not given:
        return line + ["", ""]
    inside = sum(row["interval_bytes"]["low"] <= row["measured_bytes"] <= row["interval_bytes"]["high"]
                 for row in given)
    width = statistics.median(row["interval_bytes"]["high"] - row["interval_bytes"]["low"]
                              for row in given)
    error = statistics.median(abs(row["predicted_bytes"] - row["measured_bytes"]) for row in given)
    return line + [f"{inside} of {len(given)}", f"{width / max(error, 1):.1f}"]


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        answer = json.load(file)
    with open(sys.argv[2], encoding="utf-8") as file:
        measured = {row["id"]: row for row in csv.DictReader(file)}
    groups = collections.defaultdict(list)
    reasons = collections.Counter()
    for row in answer["rows"]:
        own = measured[row["id"]]
        groups[group_of(own), own["quality"], row["metric"]].append(row)
        if row["status"] != "ok":
            reasons[own["source"], row["reason"]] += 1
    print("| rows of | quality | figure | figures | predicted | median % | p90 % | worst % "
          "| in the interval | its width / median error |\n|" + "---|" * 10)
    for (group, quality, metric), rows in sorted(groups.items()):
        print(f"| {group} | {quality} | {metric} | " + " | ".join(cells(rows)) + " |")
    print("\n| source | figures | why they are unsupported |\n|---|---|---|")
    for (source, reason), count in sorted(reasons.items(), key=lambda one: (one[0][0], -one[1])):
        print(f"| {source} | {count} | {reason} |")


if __name__ == "__main__":
    main()
