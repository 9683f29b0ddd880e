"""Tables of `headroom fit --against measured.csv --json` for rows on one GPU of sources other than
fms-acceleration and Liger's operators: errors by source, row by row, and reasons by source.

Use: tables.py AGAINST.json MEASURED.csv
"""

import collections
import csv
import json
import statistics
import sys

ELSEWHERE = {"fms-acceleration", "liger-op", "megatron-golden"}


def main(against, measured):
    with open(measured, encoding="utf-8") as file:
        lines = {row["id"]: row for row in csv.DictReader(file)}
    with open(against, encoding="utf-8") as file:
        rows = [row for row in json.load(file)["rows"]
                if lines[row["id"]]["n_gpus"] == "1" and row["source"] not in ELSEWHERE]
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row["source"], row["metric"]].append(row)
    print("| source | figure | predicted | median error | worst |\n|---|---|---|---|---|")
    for (source, metric), members in sorted(groups.items()):
        errors = [abs(row["error_pct"]) for row in members if row["status"] == "ok"]
        figures = f"{statistics.median(errors):.2f} % | {max(errors):.2f} %" if errors else " | "
        print(f"| {source} | {metric} | {len(errors)} of {len(members)} | {figures} |")
    print("\n| row | model | method | figure | measured | predicted | error |\n|---|---|---|---|---|---|---|")
    for row in rows:
        if row["status"] == "ok":
            line = lines[row["id"]]
            print(f"| {row['id']} | {line['model']} | {line['method'].split(' trainable')[0]} | "
                  f"{row['metric']} | {row['measured_bytes']:,} | {row['predicted_bytes']:,} | "
                  f"{row['error_pct']:+.2f} % |")
    print("\n| source | figures | why they are unsupported |\n|---|---|---|")
    reasons = collections.Counter((row["source"], row["reason"]) for row in rows
                                  if row["status"] != "ok")
    for (source, reason), count in sorted(reasons.items()):
        print(f"| {source} | {count} | {reason} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
