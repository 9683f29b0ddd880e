"""The tables of this page.

    headroom fit --against measured.csv --json -o against.json
    python3 tables.py measured.csv against.json
"""

import csv
import json
import math
import sys


def line(label, rows):
    errors = sorted(abs(row["error_pct"]) for row in rows)
    return (f"| {label} | {len(errors)} | {errors[math.ceil(len(errors) / 2) - 1]:.3f} % | "
            f"{errors[-1]:.3f} % |")


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        settings = {row["id"]: row for row in csv.DictReader(file)}
    rows = []
    for row in json.load(open(sys.argv[2], encoding="utf-8"))["rows"]:
        framework = settings[row["id"]]["framework"]
        if "foak" not in framework or settings[row["id"]]["n_gpus"] != "1":
            continue
        row["config"] = framework.split("framework_config=")[-1]
        row["batch"] = settings[row["id"]]["micro_batch"]
        rows.append(row)
    for metric in ("peak_allocated", "after_step"):
        chosen = [row for row in rows if row["metric"] == metric and row["status"] == "ok"]
        everything = sum(row["metric"] == metric for row in rows)
        print(f"{metric.replace('_', ' ')}: {len(chosen)} of {everything} rows modelled\n")
        print("| configuration and model | rows | median | worst |\n|---|---|---|---|")
        for key in sorted({(row["config"], row["model"]) for row in chosen}):
            same = [row for row in chosen if (row["config"], row["model"]) == key]
            print(line(f"{key[0]}, {key[1].split('/')[-1]}", same))
        print(line("all", chosen) + "\n")
    print("| id | configuration | model | batch | measured | predicted | error % |")
    print("|---|---|---|---|---|---|---|")
    for row in sorted(rows, key=lambda row: int(row["id"])):
        if row["metric"] == "peak_allocated" and row["status"] == "ok":
            print(f"| {row['id']} | {row['config']} | {row['model'].split('/')[-1]} | "
                  f"{row['batch']} | {row['measured_bytes']:,} | {row['predicted_bytes']:,} | "
                  f"{row['error_pct']:+.3f} |")


if __name__ == "__main__":
    main()
