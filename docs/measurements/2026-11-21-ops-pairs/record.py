#!/usr/bin/env python3
"""Holds the horizon of `headroom ops` against changes that were really made, on a CPU with PyTorch:
each pair is a chain or a block run eagerly, which the horizon is asked about, and by torch.compile,
which fuses. Prints a table: what the fastest of N steps took before and after, the speedup measured
and the horizon's `fuse_elementwise`.

Both runs are profiled, alike. Of many steps the fastest counts: other work on the machine makes
steps slower, never faster.

Usage: record.py --binary PATH [--steps 60] [--rows 4096]   (with torch and a C++ compiler)
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

WIDTH = 1024


def arithmetic(x, y, z):
    return ((x * y + z) * 0.5 - y) * z + x


def polynomial(x, y, z):
    return x * (1.5 - 0.5 * y * x * x) + z


def gate(x, y, z):
    return torch.nn.functional.silu(x) * y + z


def activation(x, y, z):
    return torch.sigmoid(x + y) * torch.tanh(z)


def feed_forward(x, y, z, up=torch.nn.Linear(WIDTH, 512), down=torch.nn.Linear(512, WIDTH)):
    return down(torch.nn.functional.relu(up(x)) * 0.5 + 1) * y + z


PAIRS = [arithmetic, polynomial, gate, activation, feed_forward]


def fastest(function, arguments, steps, path):
    """Records `steps` steps, keeps the fastest in the trace at `path`, and says what it took (ms)."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True,
                 schedule=schedule(wait=3, warmup=3, active=steps, repeat=1)) as profiler:
        for _ in range(steps + 6):
            function(*arguments)
            profiler.step()
    profiler.export_chrome_trace(str(path))
    trace = json.loads(path.read_text())
    spans = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    marks = [event for event in spans if event["name"].startswith("ProfilerStep")]
    best = min(marks, key=lambda mark: mark["dur"])
    begin, end = best["ts"], best["ts"] + best["dur"]
    trace["traceEvents"] = [event for event in spans
                            if begin <= event["ts"] and event["ts"] + event["dur"] <= end]
    path.write_text(json.dumps(trace))
    return best["dur"] / 1e3


def horizon(binary, path):
    answer = json.loads(subprocess.run([binary, "ops", str(path), "--json"], check=True,
                                       capture_output=True, text=True).stdout)
    changes = {change["change"]: change["speedup"] for change in answer["horizon"]}
    return changes.get("fuse_elementwise", 1.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rows", type=int, default=4096, help="of 1024 floats each")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    arguments = [torch.rand(options.rows, WIDTH) for _ in range(3)]
    print("pair,before_ms,after_ms,measured_speedup,predicted_speedup,error_pct")
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for function in PAIRS:
            before, after = Path(folder) / "before.json", Path(folder) / "after.json"
            eager = fastest(function, arguments, options.steps, before)
            fused = fastest(torch.compile(function), arguments, options.steps, after)
            measured, predicted = eager / fused, horizon(options.binary, before)
            print(f"{function.__name__},{eager:.3f},{fused:.3f},{measured:.3f},{predicted:.3f},"
                  f"{100 * (predicted / measured - 1):+.1f}", flush=True)


if __name__ == "__main__":
    main()
