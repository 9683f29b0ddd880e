#!/usr/bin/env python3
"""Runs `headroom ops` over the Kineto traces of ../shared/data and prints one line for each.

Usage: table.py PATH_OF_THE_BINARY [FOLDER]   (FOLDER: operator_traces, by default of ../shared/data)
"""

import json
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[3]


def traces(folder):
    for part in ("tracelens/traces", "hta", "param"):
        for path in sorted((folder / part).rglob("*.json.gz")):
            if "_et.json" not in path.name:
                yield path


def line(binary, path, folder):
    done = subprocess.run([binary, "ops", str(path), "--json"], capture_output=True, text=True,
                          check=False)
    if done.returncode not in (0, 5):
        return [str(path.relative_to(folder)), "exit " + str(done.returncode)]
    answer = json.loads(done.stdout)
    wall = {group["name"]: group["pct"] for group in answer["wall_time"]["groups"]}
    coverage, replay = answer["coverage"], answer["replay"]
    agree = coverage["names_agree_pct_of_kernel_time"]
    return [str(path.relative_to(folder)), answer["bound"], f"{answer['wall_time']['total_ms']:.2f}",
            f"{answer['kernel_time']['total_ms']:.3f}", f"{wall['idle']:.1f}",
            f"{coverage['unlinked_pct_of_kernel_time']:.1f}",
            f"{coverage['unclassified_pct_of_kernel_time']:.2f}",
            "" if agree is None else f"{agree:.1f}",
            "" if replay is None else f"{replay['error_pct']:+.2f}"]


def main():
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else REPO / "../shared/data/operator_traces"
    print("trace,bound,wall_ms,kernel_ms,idle_pct,unlinked_pct,unclassified_pct,names_agree_pct,"
          "replay_error_pct")
    for path in traces(folder):
        print(",".join(line(sys.argv[1], path, folder)))


if __name__ == "__main__":
    main()
