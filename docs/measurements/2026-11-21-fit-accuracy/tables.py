"""The tables of this page from the answer of `headroom fit --against measured.csv --json -o FILE`.

    python3 tables.py FILE [--source fms-acceleration]
"""

import argparse
import json
import math


def line(label, rows):
    errors = sorted(abs(row["error_pct"]) for row in rows)
    at = lambda share: errors[math.ceil(share * len(errors)) - 1]
    return (f"| {label} | {len(errors)} rows, median {at(0.5):.3f} %, p90 {at(0.9):.3f} %, "
            f"worst {errors[-1]:.3f} % |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("file")
    parser.add_argument("--source", default="fms-acceleration")
    arguments = parser.parse_args()
    rows = [row for row in json.load(open(arguments.file))["rows"]
            if row["source"] == arguments.source and row["status"] == "ok"]
    for metric in ("peak_allocated", "after_step"):
        chosen = [row for row in rows if row["metric"] == metric]
        print(f"| {metric.replace('_', ' ')} | |\n|---|---|")
        print(line("all supported", chosen))
        for model in sorted({row["model"] for row in chosen}):
            print(line(model, [row for row in chosen if row["model"] == model]))
        print()
    print("| id | model | measured | predicted | error % |\n|---|---|---|---|---|")
    for row in sorted((r for r in rows if r["metric"] == "peak_allocated"),
                      key=lambda r: int(r["id"])):
        print(f"| {row['id']} | {row['model'].split('/')[-1]} | {row['measured_bytes']:,} | "
              f"{row['predicted_bytes']:,} | {row['error_pct']:+.3f} |")


if __name__ == "__main__":
    main()
