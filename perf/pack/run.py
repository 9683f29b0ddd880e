#!/usr/bin/env python3
"""How near plans come to their bound, and how long that takes: one line an instance.

Plans every instance and recording of HEADROOM_DATA (../shared/data) on one core, three times, and a
generated step of 750,000 requests (make_step.py). `cpu` is the processor time of planning alone, without
reading, the median of the runs; wall time says the same on a machine that does nothing else. With
--minimalloc BINARY the peer solves its own instances beside us; it is not in this repo (google/minimalloc).

Usage: run.py --binary build/release/src/cli/headroom [--minimalloc BINARY] [--runs N] [--csv OUT.csv]
"""

import argparse
import csv
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CAPACITY = 1048576
# Instance, most gap in percent and most seconds that issue 3 asks for; None: no promise.
PROMISES = {
    "G_1": (0, 0.1), "resnet50": (0.1, 1), "S_1": (0.25, 3),
    "t1": (0, 0.2), "t2": (0, 0.5), "s1": (0, 1), "s2": (0.3, 3),
    "wedsonlin_medium_128_training": (0.02, 0.5), "wedsonlin_medium_256_training": (0.02, 0.5),
    "wedsonlin_medium_512_training": (0.02, 0.5), "step_750k": (0.2, 15), "step_750k_b": (0.2, 15),
}


def on_one_core():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def pack(binary, path, runs, capacity=None):
    command = [binary, "pack", str(path), "--json", "--quiet"]
    if capacity:
        command += ["--capacity", str(capacity)]
    answers = []
    for _ in range(runs):
        done = subprocess.run(command, capture_output=True, text=True, preexec_fn=on_one_core, check=False)
        if done.returncode not in (0, 1):
            sys.exit(f"{' '.join(command)}: {done.stderr}")
        answers.append(json.loads(done.stdout))
    plan = answers[0]["plan"]
    if any(answer["plan"]["bytes"] != plan["bytes"] for answer in answers):
        sys.exit(f"{path}: the plan differs from run to run")
    return {"instance": Path(path).name.split(".")[0], "requests": answers[0]["requests"],
            "lower_bound_bytes": answers[0]["lower_bound_bytes"], "plan_bytes": plan["bytes"],
            "gap_pct": plan["gap_pct"], "method": plan["method"], "fits": answers[0]["fits"],
            "cpu_seconds": statistics.median(a["plan"]["cpu_seconds"] for a in answers),
            "wall_seconds": statistics.median(a["plan"]["seconds"] for a in answers)}


def minimalloc(binary, path, runs):
    """Processor time of the peer, reading included (some milliseconds)."""
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(runs):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([binary, "--capacity", str(CAPACITY), "--input", str(path),
                            "--output", str(Path(folder) / "out.csv")],
                           capture_output=True, preexec_fn=on_one_core, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(seconds)


def show(row):
    promise = PROMISES.get(row["instance"])
    verdict = ""
    if promise:
        kept = row["gap_pct"] <= promise[0] and row["cpu_seconds"] <= promise[1]
        verdict = f"{'kept' if kept else 'MISSED'}: {promise[0]} % in {promise[1]} s"
    peer = f"  minimalloc {row['minimalloc_cpu_seconds']:.2f} s" if "minimalloc_cpu_seconds" in row else ""
    print(f"{row['instance']:<34}{row['requests']:>8} {row['gap_pct']:>10.6f} % {row['cpu_seconds']:>8.3f} s cpu "
          f"{row['wall_seconds']:>8.3f} s  {row['method']}{peer}  {verdict}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--minimalloc")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--csv")
    args = parser.parse_args()
    data = Path(os.environ.get("HEADROOM_DATA", HERE.parents[1] / "../shared/data")) / "allocation_traces"
    rows = []
    for path in sorted(data.glob("packing/?.1048576.csv")):
        row = pack(args.binary, path, args.runs, CAPACITY)
        if args.minimalloc:
            row["minimalloc_cpu_seconds"] = minimalloc(args.minimalloc, path, args.runs)
        rows.append(row)
        show(row)
    print(f"A to K together {sum(row['cpu_seconds'] for row in rows):.2f} s, "
          f"{sum(row['fits'] for row in rows)} of {len(rows)} within {CAPACITY} bytes, minimalloc "
          f"{sum(row.get('minimalloc_cpu_seconds', 0) for row in rows):.2f} s")
    others = [data / "packing" / f"{name}.csv" for name in ("G_1", "resnet50", "S_1")]
    others += sorted(data.glob("synthetic/*.csv")) + sorted(data.glob("pytorch/*.pickle"))
    with tempfile.TemporaryDirectory() as folder:
        for name, seed in (("step_750k", "1"), ("step_750k_b", "2")):
            others.append(Path(folder) / f"{name}.csv")
            subprocess.run([sys.executable, str(HERE / "make_step.py"), str(others[-1]), "--micro", "464",
                            "--layers", "42", "--stages", "16", "--seed", seed],
                           check=True, capture_output=True)
        for path in others:
            rows.append(pack(args.binary, path, args.runs))
            show(rows[-1])
    if args.csv:
        names = list(rows[0])
        with open(args.csv, "w", newline="", encoding="utf-8") as out:
            writer = csv.DictWriter(out, names)
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
