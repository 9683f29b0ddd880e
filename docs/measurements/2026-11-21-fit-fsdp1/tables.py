"""Table of `headroom fit --against measured.csv --json` for rows on several GPUs, by kind of run.

Use: tables.py AGAINST.json MEASURED.csv
"""

import csv
import json
import statistics
import sys


def kind_of(line):
    model = line["model"].split("/")[-1].removesuffix("-GPTQ")
    method = "full" if line["method"].startswith("full") else line["method"].split()[0]
    return model, method, line["mixed_precision"].split()[0], line["n_gpus"]


def words(errors):
    return f"{statistics.median(errors):.3f} %, {max(errors):.3f} %" if errors else ""


def main(against, measured):
    with open(measured, encoding="utf-8") as file:
        lines = {row["id"]: row for row in csv.DictReader(file)}
    kinds = {}
    with open(against, encoding="utf-8") as file:
        for row in json.load(file)["rows"]:
            line = lines[row["id"]]
            if row["status"] == "ok" and line["n_gpus"] != "1":
                errors = kinds.setdefault(kind_of(line), {})
                errors.setdefault(row["metric"], []).append(abs(row["error_pct"]))
    print("| model | method | autocast | GPUs | rows | peak allocated: median, worst | "
          "after the step: median, worst |\n|---|---|---|---|---|---|---|")
    for kind, errors in kinds.items():
        print(f"| {' | '.join(kind)} | {len(errors['peak_allocated'])} | "
              f"{words(errors['peak_allocated'])} | {words(errors['after_step'])} |")
    peaks = sorted(e for errors in kinds.values() for e in errors["peak_allocated"])
    print(f"\n{len(peaks)} rows: median {statistics.median(peaks):.3f} %, "
          f"p90 {peaks[int(0.9 * len(peaks))]:.3f} %, worst {peaks[-1]:.3f} %")


if __name__ == "__main__":
    main(*sys.argv[1:])
