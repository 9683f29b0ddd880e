"""How true and how narrow device_used's interval is, by model.

    headroom fit --against measured.csv --json -o against.json
    python3 analyse.py against.json [--context-mib 450]

Prints a row a measurement (what nvidia-smi showed less what was predicted, as it falls apart into
context and allocator), then coverage and width by model: an interval is good when it covers 85 to
97 % of cases that nothing was derived from, and its median full width is at most eight times the
median absolute error.
"""

import argparse
import json
import statistics

MIB = 2**20


def figures(path):
    by_id = {}
    for row in json.load(open(path))["rows"]:
        if row["status"] == "ok":
            by_id.setdefault((row["source"], row["id"]), {})[row["metric"]] = row
    return [(key, value) for key, value in sorted(by_id.items()) if "device_used" in value]


def verdict(rows):
    inside = [r["interval_bytes"]["low"] <= r["measured_bytes"] <= r["interval_bytes"]["high"]
              for r in rows]
    errors = [abs(r["measured_bytes"] - r["interval_bytes"]["expected"]) for r in rows]
    widths = [r["interval_bytes"]["high"] - r["interval_bytes"]["low"] for r in rows]
    error, width = statistics.median(errors), statistics.median(widths)
    return (f"{len(rows):4d} rows  covered {100 * sum(inside) / len(rows):5.1f} %  "
            f"width {width / MIB:7.0f} MiB  error {error / MIB:7.0f} MiB  "
            f"width/error {width / error if error else float('inf'):5.1f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--context-mib", type=float, default=450, help="expected, of the device")
    arguments = parser.parse_args()
    models = {}
    print("id      measured  expected  rest  (MiB; rest = measured - predicted reserved)")
    for (_, row_id), metrics in figures(arguments.file):
        used = metrics["device_used"]
        expected = used["interval_bytes"]["expected"]
        reserved = expected - arguments.context_mib * MIB
        rest = used["measured_bytes"] - reserved
        print(f"{row_id:7s} {used['measured_bytes'] / MIB:8.0f}  {expected / MIB:8.0f}  "
              f"{rest / MIB:6.0f}  {used['model']}")
        models.setdefault(used["model"], []).append(used)
    for model, rows in sorted(models.items()):
        print(f"{model:45s} {verdict(rows)}")


if __name__ == "__main__":
    main()
