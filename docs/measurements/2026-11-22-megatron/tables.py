#!/usr/bin/env python3
"""The tables of README.md, from `headroom fit --against FILE --json` and FILE itself.

Usage: tables.py against.json measured.csv
"""

import collections
import csv
import json
import sys

SOURCE = "megatron-golden"


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1))]


def line(name, errors):
    if not errors:
        return f"| {name} | 0 | | | |"
    return (f"| {name} | {len(errors)} | {quantile(errors, 0.5):.2f} % | {quantile(errors, 0.9):.2f} % | "
            f"{max(errors):.2f} % |")


def table(rows, measured, title, key):
    groups = collections.defaultdict(list)
    for row in rows:
        groups[key(measured[row["id"]])].append(abs(row["error_pct"]))
    print(f"\n| {title} | rows | median | p90 | worst |\n|---|---|---|---|---|")
    for name in sorted(groups):
        print(line(name, groups[name]))


def is_dense(row):
    return row["experts"] in ("none", "")


def main():
    answer = json.load(open(sys.argv[1], encoding="utf-8"))
    measured = {row["id"]: row for row in csv.DictReader(open(sys.argv[2], encoding="utf-8"))}
    ours = [row for row in answer["rows"] if measured.get(row["id"], {}).get("source") == SOURCE]
    for metric, title in (("peak_allocated", "peak allocated"), ("after_step", "allocated after the step")):
        rows = [row for row in ours if row["metric"] == metric and row["status"] == "ok"]
        print(f"\n## {title}")
        live = [row for row in rows if measured[row["id"]]["quality"] == "A"
                and measured[row["id"]]["recipe_live"] == "true" and is_dense(measured[row["id"]])]
        print("\n| | rows | median | p90 | worst |\n|---|---|---|---|---|")
        print(line("all that are modelled", [abs(row["error_pct"]) for row in rows]))
        print(line("quality A, live recipes, dense", [abs(row["error_pct"]) for row in live]))
        table(rows, measured, "GPU", lambda row: row["gpu"])
        table(rows, measured, "division", lambda row: f"tensor {row['tp']}, stages {row['pp']}, context {row['cp']}"
              + (", distributed optimizer" if row["dist_opt"] == "true" else ""))
        table(rows, measured, "positions", lambda row: row["position_embedding"])
        table(rows, measured, "attention", lambda row: row["attention_backend"])
    dense = [row for row in measured.values() if row["source"] == SOURCE and row["quality"] == "A"
             and row["recipe_live"] == "true" and is_dense(row)]
    supported = {row["id"] for row in ours if row["status"] == "ok"}
    count = sum(row["id"] in supported for row in dense)
    print(f"\nOf {len(dense)} dense rows of quality A with live recipes {count} are modelled.")
    reasons = collections.Counter(row["reason"] for row in ours if row["status"] != "ok"
                                  and row["metric"] == "peak_allocated")
    print("\n| not modelled | rows |\n|---|---|")
    for reason, rows in reasons.most_common():
        print(f"| {reason} | {rows} |")


if __name__ == "__main__":
    main()
