#!/usr/bin/env python3
"""What `headroom run` adds to the start of a process, in turns with the same process without it.

Usage: startup.py HEADROOM [--rounds N]. Prints JSON: medians in ms of the processor's time (the process
and its children, user and system), which other work on the machine disturbs little, of
  python   python -c pass: a Python that never imports torch
  hooked   the same with the environment of `headroom run` (the hook in it, no launcher around it)
  run      headroom run -- python -c pass: launcher and hook
  torch    python -c "import torch", plain and hooked, where torch is there (fewer rounds)
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
HOOK = {"HEADROOM_RUN_MODE": "run", "HEADROOM_RUN_REPORTS": "",
        "PYTHONPATH": str(REPO / "python/headroom/run/start")}


def milliseconds(command, environment):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env={**os.environ, **environment}, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def medians(cases, rounds):
    """In turns, so that what else the machine does falls on all alike; the first round is left out."""
    times = {name: [] for name in cases}
    for turn in range(rounds + 1):
        for name, (command, environment) in cases.items():
            taken = milliseconds(command, environment)
            if turn:
                times[name].append(taken)
    return {f"{name}_ms": round(statistics.median(values), 2) for name, values in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("headroom")
    parser.add_argument("--rounds", type=int, default=40)
    words = parser.parse_args()
    idle = [sys.executable, "-c", "pass"]
    result = medians({"python": (idle, {}), "hooked": (idle, HOOK),
                      "run": ([words.headroom, "run", "--", *idle], {})}, words.rounds)
    torch = [sys.executable, "-c", "import torch"]
    if subprocess.run(torch, capture_output=True, check=False).returncode == 0:
        result.update(medians({"torch": (torch, {}), "torch_hooked": (torch, HOOK)},
                              max(2, words.rounds // 8)))
    print(json.dumps({"schema": "headroom.perf.run_startup/1", "rounds": words.rounds, **result}))


if __name__ == "__main__":
    main()
