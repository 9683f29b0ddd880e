#!/usr/bin/env python3
"""Is `fit --engine megatron` as quick as was asked?

  one setting    a 70B model over 64 ranks, every stage predicted, as a whole process: 50 ms
  all settings   a space of more than 100,000, as a whole process on two cores: 60 s

Prints the median and the best of each beside its target, and what became of the settings; a process that finds
fewer settings than the space is said to have or loses one is a failure.

Usage: settings.py --binary PATH [--runs N] [--large-runs N] [--space small|large] [--json FILE]
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time

CARD = ["--engine", "megatron", "--device", "h100-sxm-80gb", "--seq", "8192"]
ONE = ["meta-llama/Llama-3.1-70B", "--gpus", "64", "--global-batch", "256", "--method", "tp:4,pp:8,dp:2,distopt",
       "--search", "false"]
# By name: what is asked, the least settings that it has, and seconds for them.
SPACES = {
    "small": (["meta-llama/Llama-3.1-8B", "--gpus", "8", "--global-batch", "64"], 1_000, None),
    "large": (["mistralai/Mixtral-8x22B-v0.1", "--gpus", "512", "--global-batch", "2048"], 100_000, 60.0),
}
ONE_SECONDS = 0.050


def timed(command):
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - begin
    if done.returncode not in (0, 1):
        sys.exit(f"{' '.join(command)}: {done.returncode}: {done.stderr[-2000:]}")
    return seconds, json.loads(done.stdout)


def row_of(name, seconds, target, **more):
    row = {"name": name, "seconds": statistics.median(seconds), "best_seconds": min(seconds), "runs": len(seconds), **more}
    if target:
        row |= {"target_seconds": target, "target_over_seconds": target / row["seconds"],
                "target_over_best": target / row["best_seconds"]}
    return row


def check_counts(counts, least):
    parts = sum(counts[key] for key in ("predicted", "too_large", "beaten", "refused"))
    if counts["settings"] < least or parts != counts["settings"]:
        sys.exit(f"{counts}: fewer than {least} settings, or some are lost")


def show(row):
    words = f"{row['name']:<44} median {row['seconds'] * 1e3:10.1f} ms, best {row['best_seconds'] * 1e3:10.1f} ms"
    if "target_seconds" in row:
        words += (f"; target {row['target_seconds'] * 1e3:g} ms: {row['target_over_seconds']:.2f}x by the median, "
                  f"{row['target_over_best']:.2f}x by the best")
    if "searched" in row:
        words += f"; {row['searched']}"
    print(words)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--runs", type=int, default=15, help="of one setting")
    parser.add_argument("--large-runs", type=int, default=3, help="of all settings")
    parser.add_argument("--space", choices=sorted(SPACES), default="large")
    parser.add_argument("--json", metavar="FILE")
    given = parser.parse_args()
    fit = [given.binary, "fit"]
    rows = [row_of("one setting, 70B over 64 ranks",
                   [timed([*fit, *ONE, *CARD, "--json"])[0] for _ in range(given.runs)], ONE_SECONDS)]
    asked, least, target = SPACES[given.space]
    seconds = []
    for _ in range(given.large_runs):
        taken, answer = timed([*fit, *asked, *CARD, "--json"])
        check_counts(answer["searched"], least)
        seconds.append(taken)
    rows.append(row_of(f"{answer['searched']['settings']:,} settings", seconds, target, searched=answer["searched"]))
    for row in rows:
        show(row)
    if given.json:
        machine = {"system": platform.platform(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump({"schema": "headroom.perf/1", "machine": machine, "results": rows}, file, indent=2)


if __name__ == "__main__":
    main()
