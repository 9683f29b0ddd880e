"""torchtitan's rows of `headroom fit --against measured.csv --json`: python rows.py < answer.json > torchtitan.csv"""

import csv
import json
import statistics
import sys

out = csv.writer(sys.stdout, lineterminator="\n")
out.writerow(["id", "status", "reason", "measured_bytes", "predicted_bytes", "error_pct"])
errors = []
for row in json.load(sys.stdin)["rows"]:
    if row["source"] != "torchtitan":
        continue
    error = row["error_pct"]
    out.writerow([row["id"], row["status"], row["reason"] or "", row["measured_bytes"],
                  row["predicted_bytes"] or "", "" if error is None else f"{error:.2f}"])
    if error is not None:
        errors.append(abs(error))
print(f"{len(errors)} rows, median {statistics.median(errors):.2f} %", file=sys.stderr)
