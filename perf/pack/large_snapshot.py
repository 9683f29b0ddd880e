#!/usr/bin/env python3
"""Writes a made-up snapshot of many entries with call stacks, as torch.cuda.memory._dump_snapshot() lays them out.

A loop of training steps over 600 call sites: each entry has a dict of its own, each allocation a list of its own
of shared frames, 20 to 60 of them, and both entries of a release share one. It says that it is generated.

Usage: large_snapshot.py OUT.pickle [--entries N] [--protocol 2..5]
"""

import argparse
import pickle
import random

BASE = 0x7F12_0000_0000


def call_sites(rng, count):
    frames = [{"name": f"function_{i}", "filename": f"/generated/module_{i % 97}.py", "line": 10 + i}
              for i in range(2500)]
    outer = frames[:25]
    return [rng.sample(frames[25:], rng.randrange(5, 35)) + outer[-rng.randrange(15, 25):] for _ in range(count)]


def trace(entries, rng):
    sites = call_sites(rng, 600)
    sizes = [rng.choice((512, 4096, 65536, 1 << 20, 3 << 20, 24 << 20)) * rng.randrange(1, 60) for _ in sites]
    out, live, clock, address = [], [], 1_700_000_000_000_000, BASE

    def add(action, address, size, frames):
        nonlocal clock
        clock += 3
        out.append({"action": action, "addr": address, "size": size, "stream": 0, "time_us": clock,
                    "compile_context": "N/A".join(("", "")), "user_metadata": "", "frames": frames})

    while len(out) < entries:
        for site, size in zip(sites, sizes):
            address += -(-size // 512) * 512
            add("alloc", address, size, list(site))
            live.append((address, size, list(site)))
        while live:
            where, size, frames = live.pop()
            add("free_requested", where, size, frames)
            add("free_completed", where, size, frames)
        address = BASE
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--entries", type=int, default=1_500_000)
    parser.add_argument("--protocol", type=int, default=4)
    options = parser.parse_args()
    segment = {"device": 0, "address": BASE, "total_size": 1 << 36, "allocated_size": 0, "active_size": 0,
               "requested_size": 0, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
               "is_expandable": False, "frames": [],
               "blocks": [{"address": BASE, "size": 1 << 36, "requested_size": 0, "state": "inactive", "frames": []}]}
    snapshot = {"segments": [segment], "device_traces": [trace(options.entries, random.Random(7))],
                "external_annotations": [], "generated_by": "perf/pack/large_snapshot.py"}
    with open(options.out, "wb") as file:
        pickle.dump(snapshot, file, protocol=options.protocol)


if __name__ == "__main__":
    main()
