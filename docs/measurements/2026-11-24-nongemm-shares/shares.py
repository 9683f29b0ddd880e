#!/usr/bin/env python3
"""Shares of runs by two readings: shares.py HEADROOM RUN1 RUN2 RUN3 > shares.jsonl

Each RUN is a folder that `headroom bench nongemm --keep` made. Of each setting that all have: the non-GEMM share of its
quickest run under the profiler, and of the run composed of all of them, in each RUN. Then a table, on stderr.
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path

GEMM = ("gemm", "attention")


def share(groups):
    whole = sum(groups.values())
    return 100 * (1 - sum(groups.get(name, 0) for name in GEMM) / whole)


def of_trace(binary, file):
    done = subprocess.run([binary, "ops", str(file), "--json"], capture_output=True, text=True, check=False)
    return share({group["name"]: group["ms"] for group in json.loads(done.stdout)["kernel_time"]["groups"]})


def read(binary, folder):
    lines = [json.loads(line) for line in (Path(folder) / "results.jsonl").read_text().splitlines()]
    for record in lines[1:]:
        if record["status"] != "measured":
            continue
        setting = record["setting"]
        key = " ".join((setting["model"], setting["engine"], setting["quantize"], setting["fusion"]))
        composed = share({group["name"]: group["ms"] for group in record["profile"]["groups"]})
        yield key, (of_trace(binary, Path(folder) / record["trace"]), composed, record["profiled_runs"], record["seconds"])


def main():
    binary, *folders = sys.argv[1:]
    runs = [dict(read(binary, folder)) for folder in folders]
    common = [key for key in runs[0] if all(key in run for run in runs)]
    apart = {"quickest": [], "composed": []}
    for key in common:
        row = {"setting": key, "quickest_pct": [run[key][0] for run in runs], "composed_pct": [run[key][1] for run in runs],
               "profiled_runs": [run[key][2] for run in runs], "seconds": [run[key][3] for run in runs]}
        for name in apart:
            apart[name].append(max(row[f"{name}_pct"]) - min(row[f"{name}_pct"]))
        print(json.dumps(row), flush=True)
        words = "".join(f"{value:7.1f}" for value in row["quickest_pct"] + row["composed_pct"])
        print(f"{key:<36}{words}   apart {apart['quickest'][-1]:5.1f} {apart['composed'][-1]:5.1f}", file=sys.stderr)
    for name, values in apart.items():
        print(f"{name}: {sum(value <= 3 for value in values)} of {len(values)} within 3 points, median "
              f"{statistics.median(values):.1f}, most {max(values):.1f}", file=sys.stderr)


if __name__ == "__main__":
    main()
