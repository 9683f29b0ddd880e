"""What was measured beside what had been predicted, by method, from the files beside it.

    python3 tables_methods.py > tables_methods.md
    python3 predict.py HEADROOM > now.csv && python3 tables_methods.py now.csv      what today's program says

Reads predictions.csv (written before) or what is named, and methods-look.csv, methods-aside.csv (measured_look.csv and measured_aside.csv of
perf/gpu/methods_memory.py). Errors are percent of what was measured. Rows that failed are listed with their reason.
"""

import csv
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
METRICS = (("peak allocated", "value_bytes", "peak_allocated_bytes"),
           ("the same, from the second step on", "steady_peak_bytes", "peak_allocated_bytes"),
           ("after the step", "alloc_after_step_bytes", "after_step_bytes"),
           ("peak reserved", "reserved_bytes", "peak_reserved_bytes"))


def rows_of(name):
    path = HERE / name
    return list(csv.DictReader(path.open(newline=""))) if path.exists() else []


def joined(name, predictions):
    """A row of each setting, with what is reserved, and its prediction."""
    rows = rows_of(name)
    reserved = {row["id"][:-1]: row["value_bytes"] for row in rows if row["id"].endswith("r")}
    for row in rows:
        if not row["id"].endswith("r"):
            said = predictions[row["id"]]
            if said["flags"] != row["flags"]:
                sys.exit(f"setting {row['id']} is not the one that was predicted")
            yield {**row, "reserved_bytes": reserved.get(row["id"], "")}, said


def error_pct(row, said, measured, predicted):
    if not row[measured] or not said[predicted]:
        return None
    return 100 * (int(said[predicted]) / int(row[measured]) - 1)


def nearest(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def table(head, rows):
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print()


def summary(pairs_by_half):
    made = []
    for half, pairs in pairs_by_half.items():
        for way in ("", *dict.fromkeys(row["way"] for row, _ in pairs)):
            own = [pair for pair in pairs if way in ("", pair[0]["way"])]
            for label, *names in METRICS:
                errors = [error for row, said in own if (error := error_pct(row, said, *names)) is not None]
                if errors:
                    sizes = [abs(error) for error in errors]
                    made.append((half, way or "all", label, len(errors), f"{statistics.median(sizes):.2f}",
                                 f"{nearest(sizes, 0.9):.2f}", f"{max(errors, key=abs):+.2f}"))
    print("## `headroom fit` as predicted beforehand: error, percent\n")
    table(("families", "way", "metric", "rows", "median", "p90", "worst"), made)


def every(pairs_by_half):
    made = []
    for half, pairs in pairs_by_half.items():
        for row, said in pairs:
            if row["status"] != "ok":
                continue
            errors = [error_pct(row, said, *names) for _, *names in METRICS]
            stage = f", stage {row['stage']}" if row["stage"] else ""
            made.append((row["id"], half, row["way"] + stage, said["family"], f"`{row['flags']}`", f"{int(row['value_bytes']) / 2**30:.3f}",
                         *(f"{error:+.2f}" if error is not None else "" for error in errors)))
    print("## Every row\n")
    table(("id", "families", "way", "family", "asked", "peak, GiB", *(label for label, *_ in METRICS)), made)


def failed(pairs_by_half):
    made = [(row["id"], row["way"], said["family"], row["status"], said["refused"]) for pairs in pairs_by_half.values()
            for row, said in pairs if row["status"] != "ok" or said["refused"]]
    print("## Without a figure\n")
    table(("id", "way", "family", "why", "refused by fit"), made)


def main():
    predictions = {row["id"]: row for row in rows_of(Path(sys.argv[1]).resolve() if sys.argv[1:] else "predictions.csv")}
    pairs_by_half = {half: list(joined(f"methods-{half}.csv", predictions)) for half in ("look", "aside")}
    summary(pairs_by_half)
    every(pairs_by_half)
    failed(pairs_by_half)


if __name__ == "__main__":
    main()
