#!/usr/bin/env python3
"""What share of the tokens measured peaks imply that a rank's experts got, and how true the ends of `--expert-imbalance` are.

A peak that grows straight between the shares LOW and 1 (or 1 and HIGH) says the share that would give what was measured. Rows
of one config_key are a recipe; each recipe counts the same.

Usage: shares.py AGAINST.json MEASURED.csv [LOW HIGH]
"""

import collections
import csv
import json
import sys


def percentile(weighted, part):
    """Of (value, weight): the least value that, with all below it, has `part` of the weight."""
    whole = sum(weight for _, weight in weighted)
    upto = 0
    for value, weight in sorted(weighted):
        upto += weight
        if upto >= part * whole:
            return value
    raise AssertionError("no weight")


def ends(shares):
    weighted = [(share, 1 / len(of_recipe)) for of_recipe in shares.values() for share in of_recipe]
    return percentile(weighted, 0.05), percentile(weighted, 0.95)


def main():
    against, measured = sys.argv[1:3]
    low, high = (float(word) for word in sys.argv[3:5]) if len(sys.argv) > 3 else (0.89, 1.07)
    with open(measured, encoding="utf-8") as file:
        recipes = {row["id"]: row["config_key"] for row in csv.DictReader(file)}
    with open(against, encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    shares = collections.defaultdict(list)
    left_out = 0
    for row in rows:
        interval = row.get("interval_bytes")
        if row.get("metric") != "peak_allocated" or not interval:
            continue
        beyond = row["measured_bytes"] - interval["expected"]
        end, bytes_there = (low, interval["low"]) if beyond < 0 else (high, interval["high"])
        if bytes_there == interval["expected"]:
            left_out += 1  # its peak is where no expert's tokens are
            continue
        share = 1 + (end - 1) * beyond / (bytes_there - interval["expected"])
        shares[recipes[row["id"]]].append(share)
    everything = [share for of_recipe in shares.values() for share in of_recipe]
    print(f"{len(everything)} peaks of {len(shares)} recipes; {left_out} whose peak no share moves are left out")
    for name, of_recipe in sorted(shares.items()):
        print(f"  {len(of_recipe):3} {min(of_recipe):.3f} to {max(of_recipe):.3f}  {name}")
    print("5 % and 95 %: {:.3f}, {:.3f}".format(*ends(shares)))
    held = sum(low <= share <= high for share in everything)
    print(f"within {low} to {high}: {held} of {len(everything)}")
    aside = 0
    for name, of_recipe in shares.items():
        first, last = ends({other: values for other, values in shares.items() if other != name})
        aside += sum(first <= share <= last for share in of_recipe)
    print(f"within ends of the other recipes: {aside} of {len(everything)}")


if __name__ == "__main__":
    main()
