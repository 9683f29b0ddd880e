#!/usr/bin/env python3
"""Peaks of QLoRA by how a model is shared out: table.py --headroom PROGRAM > peaks.csv"""

import argparse
import csv
import json
import subprocess
import sys

MODEL = "meta-llama/Llama-3.1-70B"
WORDS = ["--device", "a100-sxm-80gb", "--batch", "1", "--seq", "2048", "--checkpointing", "full", "--kbit-preparation", "none"]
METHODS = ["qlora"] + [f"qlora,{way}:{ranks}" for way in ("zero2", "zero3", "fsdp1", "fsdp2") for ranks in (2, 4, 8)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--headroom", required=True)
    program = parser.parse_args().headroom
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["method", "parameters_bytes", "gathered_parameters_bytes", "peak_allocated_bytes", "peak_reserved_bytes",
                     "steady_allocated_bytes", "step_seconds"])
    for method in METHODS:
        done = subprocess.run([program, "fit", MODEL, *WORDS, "--method", method, "--json"], capture_output=True, text=True, check=False)
        answer = json.loads(done.stdout)
        memory = answer["memory"]
        parts = memory["breakdown_bytes"]
        writer.writerow([method, parts["parameters"], parts.get("gathered_parameters", 0), memory["peak_allocated_bytes"],
                         memory["peak_reserved_bytes"], memory["steady_allocated_bytes"],
                         round((answer["time"] or {}).get("step_seconds", 0), 3)])


if __name__ == "__main__":
    main()
