#!/usr/bin/env python3
"""How long `fit --engine megatron` takes, and how many settings it predicts and passes over.

Usage: measure.py --binary PATH [--repeat N]   writes results.csv beside itself and prints the table.
"""

import argparse
import csv
import json
import os
import resource
import subprocess
import time
from pathlib import Path

CARD = ["--device", "h100-sxm-80gb", "--seq", "8192"]
# Model, GPUs, sequences a step.
SPACES = [
    ("meta-llama/Llama-3.1-8B", 8, 64),
    ("meta-llama/Llama-3.1-70B", 8, 64),
    ("meta-llama/Llama-3.1-70B", 64, 256),
    ("meta-llama/Llama-3.1-70B", 1024, 4096),
    ("meta-llama/Llama-3.1-405B", 1024, 2048),
    ("mistralai/Mixtral-8x7B-v0.1", 16, 64),
    ("mistralai/Mixtral-8x22B-v0.1", 512, 2048),
]
# One setting of 70 billion parameters on 64 ranks, as a whole process.
ONE = ["meta-llama/Llama-3.1-70B", "--gpus", "64", "--global-batch", "256",
       "--method", "tp:4,pp:8,dp:2,distopt", "--search", "false"]


def run(binary, arguments):
    """Seconds by the wall and of a processor, and the answer."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    out = subprocess.run([binary, "fit", *arguments, "--engine", "megatron", *CARD, "--json"],
                         capture_output=True, check=False, text=True)
    wall = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, used, json.loads(out.stdout)


def fastest(binary, arguments, repeat):
    return min((run(binary, arguments) for _ in range(repeat)), key=lambda one: one[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    wall, used, _ = fastest(given.binary, ONE, 5 * given.repeat)
    rows = [{"model": ONE[0], "gpus": 64, "global_batch": 256, "settings": 1, "predicted": 1,
             "too_large": 0, "beaten": 0, "wall_seconds": f"{wall:.3f}",
             "processor_seconds": f"{used:.3f}", "load": f"{os.getloadavg()[0]:.1f}",
             "first": ONE[6]}]
    for model, gpus, batch in SPACES:
        asked = [model, "--gpus", str(gpus), "--global-batch", str(batch)]
        wall, used, answer = fastest(given.binary, asked, given.repeat)
        counts = answer["searched"]
        first = answer["methods"][0]
        rows.append({"model": model, "gpus": gpus, "global_batch": batch,
                     **{key: counts[key] for key in ("settings", "predicted", "too_large", "beaten")},
                     "wall_seconds": f"{wall:.2f}", "processor_seconds": f"{used:.2f}",
                     "load": f"{os.getloadavg()[0]:.1f}",
                     "first": first["flags"] if first["fits"] == "yes" else "none fits"})
    with open(Path(__file__).parent / "results.csv", "w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    print("| model | GPUs | settings | predicted | too large | beaten | wall, s | processor, s |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {row['model']} | {row['gpus']} | {row['settings']:,} | {row['predicted']:,} | "
              f"{row['too_large']:,} | {row['beaten']:,} | {row['wall_seconds']} | "
              f"{row['processor_seconds']} |")


if __name__ == "__main__":
    main()
