"""The figures of the README, from steps.csv beside it: python3 table.py"""

import csv
import pathlib
import statistics

rows = list(csv.DictReader((pathlib.Path(__file__).parent / "steps.csv").open()))
print("| model | batches | median step error % | largest % | within the 90 % interval | median share error, points: attention | matmul | host | other |")
print("|---|---|---|---|---|---|---|---|---|")
for name, chosen in [(m, [r for r in rows if r["model"] == m]) for m in ("opt-1.3b", "opt-2.7b", "llama-2-7b")] + [
    ("the two held out", [r for r in rows if r["model"] != "opt-1.3b"])
]:
    error = [100 * abs(float(r["predicted_step_ms"]) / float(r["measured_step_ms"]) - 1) for r in chosen]
    inside = sum(float(r["low_ms"]) <= float(r["measured_step_ms"]) <= float(r["high_ms"]) for r in chosen)
    shares = [
        statistics.median(abs(float(r[f"measured_{k}_pct"]) - float(r[f"{k}_pct"])) for r in chosen)
        for k in ("attention", "matmul", "host", "other")
    ]
    cells = [name, len(chosen), f"{statistics.median(error):.1f}", f"{max(error):.1f}", f"{inside} of {len(chosen)}"]
    print("| " + " | ".join(str(c) for c in cells + [f"{s:.1f}" for s in shares]) + " |")
every = [
    abs(float(r[f"measured_{k}_pct"]) - float(r[f"{k}_pct"]))
    for r in rows if r["model"] != "opt-1.3b" for k in ("attention", "matmul", "host", "other")
]
print(f"\nMedian over all shares of the two held out: {statistics.median(every):.1f} points.")
