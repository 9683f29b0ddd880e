#!/usr/bin/env python3
"""How fast a snapshot is read beside Python's pickle.load of the same file, in the same run, and in what memory.

Processor time, so that what else runs on the machine matters less; the median of RUNS loads after a first one,
in a process of its own for each side, the sides taking turns. Memory is what was resident at most during the
first load, less what was before. "walk alone": what a reader would reach that brings the file into memory and
passes over its instructions one by one, making nothing of them.

Usage: read_snapshot.py --binary build/release/perf/headroom_read_snapshot [--runs N] [--json OUT] FILE...
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

# The peer, as its own process.
PEER = """
import json, pickle, resource, sys, time
def resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before, seconds = resident(), []
for run in range(int(sys.argv[2])):
    start = time.process_time()
    with open(sys.argv[1], "rb") as file:
        snapshot = pickle.load(file)
    seconds.append(time.process_time() - start)
    if run == 0:
        after = resident()
    del snapshot
print(json.dumps({"seconds": seconds, "resident_bytes": after - before}))
"""


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{command[0]}: {done.stderr}")
    return json.loads(done.stdout)


def measure(binary, path, runs):
    size = os.path.getsize(path)
    ours, theirs = [], []
    for _ in range(3):
        ours.append(run([binary, str(path), str(runs + 1)]))
        theirs.append(run([sys.executable, "-c", PEER, str(path), str(runs + 1)]))
    def median(sides, key="seconds"):
        return statistics.median(second for side in sides for second in side[key][1:])
    row = {"file": Path(path).name, "file_bytes": size, "entries": ours[0]["entries"],
           "headroom_seconds": median(ours), "pickle_load_seconds": median(theirs),
           "instructions": ours[0]["instructions"], "walk_seconds": median(ours, "walk_seconds"),
           "headroom_resident_bytes": max(side["resident_bytes"] for side in ours),
           "pickle_load_resident_bytes": max(side["resident_bytes"] for side in theirs)}
    row["times_as_fast"] = row["pickle_load_seconds"] / row["headroom_seconds"]
    row["walk_times_as_fast"] = row["pickle_load_seconds"] / row["walk_seconds"]
    row["first_load_times_as_fast"] = (statistics.median(side["seconds"][0] for side in theirs) /
                                       statistics.median(side["seconds"][0] for side in ours))
    row["resident_over_file"] = row["headroom_resident_bytes"] / size
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--json")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    rows = [measure(options.binary, path, options.runs) for path in options.files]
    for row in rows:
        print(f"{row['file']:<44} {row['file_bytes'] / 1e6:8.2f} MB {row['headroom_seconds'] * 1e3:9.2f} ms "
              f"{row['times_as_fast']:5.1f}x (first load {row['first_load_times_as_fast']:.1f}x, "
              f"walk alone {row['walk_times_as_fast']:.1f}x), {row['resident_over_file']:.2f} x the file")
    if options.json:
        Path(options.json).write_text(json.dumps({"schema": "headroom.perf.read_snapshot/1", "results": rows},
                                                 indent=2) + "\n")


if __name__ == "__main__":
    main()
