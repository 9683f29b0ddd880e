#!/usr/bin/env python3
"""Makes the small memory snapshots in this folder, without PyTorch and without a GPU.

A naive caching allocator (linear search, lists of blocks) runs a made-up training step and writes what
torch.cuda.memory._dump_snapshot() would. It shares no code with src/memory, so the C++ simulator is held
against a second reading of the same rules. Usage: make_snapshot.py [FOLDER]   (the folder of this script)
"""

import copy
import pickle
import random
import sys
from pathlib import Path

MIB = 1 << 20
BASE = 0x7F12_0000_0000


class Allocator:
    """Default settings, one pool per size class and stream."""

    def __init__(self):
        self.segments = []  # dicts with blocks: [address, size, requested, state, frames]
        self.next = BASE
        self.trace = []
        self.clock = 1_700_000_000_000_000

    def record(self, action, address, size, stream, frames):
        self.clock += 7
        self.trace.append({
            "action": action, "addr": address, "size": size, "stream": stream, "time_us": self.clock,
            "compile_context": "N/A", "user_metadata": "", "frames": frames})

    def alloc(self, requested, stream, frames):
        size = max(512, -(-requested // 512) * 512)
        small = size <= MIB
        best = None
        for segment in self.segments:
            if segment["stream"] != stream or (segment["segment_type"] == "small") != small:
                continue
            for index, block in enumerate(segment["blocks"]):
                if block[3] == "inactive" and block[1] >= size:
                    key = (block[1], block[0])
                    if best is None or key < best[0]:
                        best = (key, segment, index)
        if best is None:
            total = 2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
            segment = {"address": self.next, "total_size": total, "stream": stream,
                       "segment_type": "small" if small else "large",
                       "blocks": [[self.next, total, 0, "inactive", []]]}
            self.next += total + 2 * MIB
            self.segments.append(segment)
            self.record("segment_alloc", segment["address"], total, stream, frames)
            index = 0
        else:
            _, segment, index = best
        block = segment["blocks"][index]
        rest = block[1] - size
        if rest >= 512 if small else rest > MIB:
            segment["blocks"].insert(index + 1, [block[0] + size, rest, 0, "inactive", []])
            block[1] = size
        block[2:] = [requested, "active_allocated", frames]
        self.record("alloc", block[0], requested, stream, frames)
        return block

    def free(self, block):
        segment = next(s for s in self.segments if any(b is block for b in s["blocks"]))
        self.record("free_requested", block[0], block[2], segment["stream"], block[4])
        self.record("free_completed", block[0], block[2], segment["stream"], block[4])
        block[2:] = [0, "inactive", []]
        merged = []
        for entry in segment["blocks"]:
            if merged and merged[-1][3] == entry[3] == "inactive":
                merged[-1][1] += entry[1]
            else:
                merged.append(entry)
        segment["blocks"] = merged

    def empty_cache(self):
        whole = [s for s in self.segments if len(s["blocks"]) == 1 and s["blocks"][0][3] == "inactive"]
        order = {"large": 0, "small": 1}
        for segment in sorted(whole, key=lambda s: (order[s["segment_type"]], s["stream"],
                                                    s["total_size"], s["address"])):
            self.record("segment_free", segment["address"], segment["total_size"], segment["stream"], [])
            self.segments.remove(segment)

    def snapshot(self, keep):
        segments = []
        for segment in sorted(self.segments, key=lambda s: s["address"]):
            active = sum(b[1] for b in segment["blocks"] if b[3] != "inactive")
            segments.append({
                "device": 0, "address": segment["address"], "total_size": segment["total_size"],
                "allocated_size": active, "active_size": active,
                "requested_size": sum(b[2] for b in segment["blocks"]), "stream": segment["stream"],
                "segment_type": segment["segment_type"], "segment_pool_id": (0, 0),
                "is_expandable": False, "frames": [],
                "blocks": [{"address": b[0], "size": b[1], "requested_size": b[2], "state": b[3],
                            "frames": b[4]} for b in segment["blocks"]]})
        settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1,
                    "garbage_collection_threshold": 0.0, "expandable_segments": False,
                    "roundup_power2_divisions": {str(1 << i): 0 for i in range(16)}}
        return {"segments": segments, "device_traces": [self.trace[-keep:]],
                "allocator_settings": settings,
                "external_annotations": [{"stage": "START", "name": "Optimizer.step", "device": 0,
                                          "time_us": self.clock}]}


def train(seed):
    rng = random.Random(seed)
    allocator = Allocator()
    frames = [[{"name": f"layer{i}", "filename": "model.py", "line": 10 + i},
               {"name": "main", "filename": "train.py", "line": 3}] for i in range(6)]
    for i in range(6):
        allocator.alloc(rng.randrange(1, 24 * MIB), 0, frames[i])
        allocator.alloc(rng.randrange(1, 5000), 0, frames[i])
    for _ in range(3):
        saved = []
        for i in range(6):
            scratch = allocator.alloc(rng.randrange(1, 12 * MIB), 0, frames[i])
            saved.append(allocator.alloc(rng.randrange(1, 6 * MIB), 0, frames[i]))
            if i == 3:
                saved.append(allocator.alloc(rng.randrange(1, 3 * MIB), 0x5581_0000_4000, frames[i]))
            allocator.free(scratch)
        for block in reversed(saved):
            gradient = allocator.alloc(rng.randrange(1, 2 * MIB), 0, frames[0])
            allocator.free(block)
            allocator.free(gradient)
        allocator.empty_cache()
    return allocator


def torch20(snapshot):
    """The same in the format of torch 2.0: no addresses of blocks, no settings, no times."""
    old = {"segments": [], "device_traces": []}
    for segment in snapshot["segments"]:
        keys = ("device", "address", "total_size", "allocated_size", "active_size", "stream", "segment_type")
        copy = {key: segment[key] for key in keys}
        copy["blocks"] = []
        for block in segment["blocks"]:
            entry = {key: block[key] for key in ("size", "requested_size", "state")}
            if block["state"] != "inactive":
                entry["history"] = [{"addr": block["address"], "frames": block["frames"],
                                     "real_size": block["requested_size"]}]
            copy["blocks"].append(entry)
        old["segments"].append(copy)
    for trace in snapshot["device_traces"]:
        old["device_traces"].append([{key: entry[key] for key in ("action", "addr", "size", "stream")}
                                     for entry in trace])
    return old


def newest(snapshot):
    """The same with what PyTorch has added up to 2.13: pools of entries, annotations among them, running out
    of memory, and pinned host memory beside it, whose keys are not ours to know."""
    snapshot = copy.deepcopy(snapshot)
    trace = snapshot["device_traces"][0]
    for entry in trace:
        entry["pool_id"] = (0, 0)
        entry["user_metadata"] = "phase" if entry["action"] == "alloc" else ""
    clock = trace[-1]["time_us"]
    trace.insert(5, {"action": "annotate", "name": "forward", "time_us": clock, "pool_id": (0, 0)})
    trace.append({"action": "oom", "device_free": 3 * MIB, "size": 64 * MIB, "stream": 0, "time_us": clock + 1,
                  "frames": [], "pool_id": (0, 0)})
    snapshot["device_traces"].append([])  # a second device, idle
    snapshot["host_segments"] = [{"address": 64, "blocks": [{"state": "active", "size": 7}], "size": 7}]
    snapshot["host_traces"] = [[dict(trace[0]), {"action": "alloc", "pointer": 1}]]
    return snapshot


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    allocator = train(20240917)
    whole = allocator.snapshot(10**6)
    files = {
        "snapshot_whole.pickle": (whole, 4),
        "snapshot_protocol2.pickle": (whole, 2),
        "snapshot_protocol3.pickle": (whole, 3),
        "snapshot_protocol5.pickle": (whole, 5),
        "snapshot_ring.pickle": (allocator.snapshot(70), 5),
        "snapshot_torch20.pickle": (torch20(whole), 4),
        "snapshot_newest.pickle": (newest(allocator.snapshot(70)), 4),
    }
    for name, (content, protocol) in files.items():
        (folder / name).write_bytes(pickle.dumps(content, protocol=protocol))


if __name__ == "__main__":
    main()
