#!/usr/bin/env python3
"""How many kernels `headroom ops` sorts rightly by name alone: names.csv, whose groups were decided from the source.

A trace of one kernel a name, of the same length and without operators, goes through the program; where it puts each is
held against the groups that are right (a fused kernel may have several).

Usage: judge.py --binary PATH [--show]
"""

import argparse
import collections
import csv
import json
import subprocess
import tempfile
from pathlib import Path


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--show", action="store_true", help="what is wrong, a line each")
    words = parser.parse_args()
    with open(Path(__file__).parent / "names.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = sorted({row["kernel"] for row in rows})
    events = [{"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 20 * i, "dur": 10,
               "args": {"device": 0, "stream": 7, "correlation": i + 1}} for i, name in enumerate(names)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "names.json"
        path.write_text(json.dumps({"traceEvents": events}))
        answer = json.loads(subprocess.run([words.binary, "ops", str(path), "--json"], check=True, capture_output=True,
                                           text=True).stdout)
    said = {kernel["name"]: kernel["group"] for kernel in answer["kernels"]}
    draws = collections.defaultdict(collections.Counter)
    for row in rows:
        group = said[row["kernel"]]
        is_right = group in row["groups"].split("|")
        kind = "right" if is_right else "unclassified" if group == "unclassified" else "wrong"
        draws[row["draw"]][kind] += 1
        if words.show and not is_right:
            print(f"{row['draw']}: {row['kernel']} is {row['groups']}, not {group}")
    for draw, counts in draws.items():
        total = sum(counts.values())
        print(f"{draw}: {counts['right']} of {total} right ({100 * counts['right'] / total:.1f} %), "
              f"{counts['wrong']} wrong, {counts['unclassified']} unclassified")


if __name__ == "__main__":
    main()
