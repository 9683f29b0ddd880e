#!/usr/bin/env python3
"""`headroom ops` on a trace of gigabytes: makes one and reads it, and prints time and memory as JSON.

The trace is a recorded one of PyTorch, over and over, each time later and with ids of its own. It is
written to --folder (as large as asked for) and removed again.

Usage: large_trace.py --binary PATH [--gigabytes 2] [--runs 3] [--folder /tmp] TRACE.json[.gz]
"""

import argparse
import gzip
import json
import os
import re
import sys
import time
from pathlib import Path

TIME = re.compile(rb'("ts": ?)(\d+)')
ID = re.compile(rb'("(?:correlation|External id|Ev Idx|Record function id)": ?)(\d+)')


def read(path):
    packed = path.read_bytes()
    return gzip.decompress(packed) if packed[:2] == b"\x1f\x8b" else packed


def repeat(source, target, size):
    """Writes `source` over and over until `target` has `size` bytes; returns how often."""
    document = json.loads(source)
    events = json.dumps(document.pop("traceEvents")).encode()[1:-1]
    times = [int(found[2]) for found in TIME.finditer(events)]
    # Far events (metadata that sorts tracks) would move the repetitions apart.
    times.sort()
    span = times[-len(times) // 1000 - 1] - times[len(times) // 1000] + 1_000_000
    most = max(int(found[2]) for found in ID.finditer(events)) + 1
    count = 0
    with open(target, "wb") as file:
        file.write(json.dumps(document).encode()[:-1] + b', "traceEvents": [')
        while file.tell() < size:
            later = lambda found: b"%s%d" % (found[1], int(found[2]) + count * span)
            other = lambda found: b"%s%d" % (found[1], int(found[2]) + count * most)
            file.write(b",\n" if count else b"")
            file.write(ID.sub(other, TIME.sub(later, events)))
            count += 1
        file.write(b"]}")
    return count


def measure(command):
    """Seconds, CPU seconds and peak memory of one run."""
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.execvp(command[0], command)
    _, status, usage = os.wait4(child, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"large_trace: {' '.join(command)} failed")
    return {"seconds": time.monotonic() - began, "cpu_seconds": usage.ru_utime + usage.ru_stime,
            "peak_rss_bytes": usage.ru_maxrss * 1024}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--gigabytes", type=float, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("/tmp"))
    parser.add_argument("trace", type=Path)
    options = parser.parse_args()
    target = options.folder / f"large_trace_{os.getpid()}.json"
    try:
        count = repeat(read(options.trace), target, int(options.gigabytes * 1e9))
        runs = [measure([options.binary, "ops", str(target), "--json"])
                for _ in range(options.runs)]
        print(json.dumps({"trace": options.trace.name, "repetitions": count,
                          "bytes": target.stat().st_size,
                          "seconds": min(run["seconds"] for run in runs),
                          "cpu_seconds": min(run["cpu_seconds"] for run in runs),
                          "peak_rss_bytes": max(run["peak_rss_bytes"] for run in runs),
                          "load": os.getloadavg()[0]}, indent=2))
    finally:
        target.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
