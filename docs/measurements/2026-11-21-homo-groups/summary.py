#!/usr/bin/env python3
"""The table of README.md, from orders.csv: the best gap of each family of orders, in percent."""

import csv
from collections import defaultdict
from pathlib import Path

best = defaultdict(lambda: defaultdict(lambda: 1e9))
for row in csv.DictReader((Path(__file__).parent / "orders.csv").open(encoding="utf-8")):
    order = row["order"]
    family = order.split()[-1] if order.startswith("groups") else "portfolio"
    if order.startswith("HomoPhase"):
        family = "in the portfolio"
    for column in ("gap_pct", "promoted_pct"):
        key = (family, column)
        best[row["instance"]][key] = min(best[row["instance"]][key], float(row[column]))
columns = [("portfolio", "gap_pct"), ("portfolio", "promoted_pct"), ("open", "gap_pct"), ("open", "promoted_pct"),
           ("in the portfolio", "promoted_pct"), ("closed", "gap_pct"), ("sunk", "gap_pct")]
print("| instance | other orders | promoted | open groups | promoted | 1/128, promoted | closed | sunk |")
print("|---|" + "---|" * len(columns))
for instance, gaps in best.items():
    print(f"| {instance} | " + " | ".join(f"{gaps[column]:.4f}" for column in columns) + " |")
