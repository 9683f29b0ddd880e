#!/usr/bin/env python3
"""`headroom ops` beside TraceLens, HTA and a few lines of Python on every Kineto trace: do they count
the same? One line a trace, then one a difference.

Peers are run from checkouts of their public repositories: github.com/AMD-AGI/TraceLens,
github.com/facebookresearch/HolisticTraceAnalysis. The interpreter needs what they import (pandas,
networkx, plotly, orjson, ...).

Usage: facts.py --binary PATH [--tracelens FOLDER] [--hta FOLDER] [--only PART] FOLDER
       FOLDER: operator_traces
"""

import argparse
import collections
import contextlib
import gzip
import json
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

logging.disable(logging.CRITICAL)
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"  # else HTA cuts times to whole microseconds
DEVICE = {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"}
HOST = {"cpu_op", "operator"}


def traces(folder):
    for part in ("tracelens/traces", "hta", "param"):
        for path in sorted((folder / part).rglob("*.json.gz")):
            if "_et.json" not in path.name:
                yield path


def ours(binary, path):
    done = subprocess.run([binary, "ops", str(path), "--json"], capture_output=True, text=True,
                          check=False)
    return json.loads(done.stdout) if done.returncode in (0, 5) else None


def events_of(path):
    with gzip.open(path) as file:
        found = json.loads(file.read(), strict=False)["traceEvents"]
    return [event for event in found if event.get("ph") == "X" and "dur" in event]


def is_step(event):
    return event["name"].startswith("ProfilerStep") and "gpu" not in str(event.get("cat", "")).lower()


class Direct:
    """The facts, in a few lines: each device event's duration, and NonGEMM Bench's formula."""

    def __init__(self, events):
        device = [event for event in events if str(event.get("cat", "")).lower() in DEVICE]
        calls = {}
        for event in events:
            kind = str(event.get("cat", "")).lower()
            if kind in ("cuda_runtime", "cuda_driver", "hip_runtime", "runtime"):
                calls.setdefault(event.get("args", {}).get("correlation"), event)
        steps = sorted({(event["ts"], event["ts"] + event["dur"]) for event in events
                        if is_step(event)})
        within = lambda time: not steps or any(begin <= time < end for begin, end in steps)
        self.by_kernel = collections.Counter()
        self.outside = collections.Counter()
        self.launch = {}
        for event in device:
            call = calls.get(event.get("args", {}).get("correlation"))
            inside = within(call["ts"]) if call else not steps
            (self.by_kernel if inside else self.outside)[event["name"]] += event["dur"]
            if call and inside:
                self.launch.setdefault((call["pid"], call["tid"]), []).append(
                    (call["ts"], event["dur"]))
        self.paper_ms = self.paper(events, within) / 1e3

    def paper(self, events, within):
        """Host time of the outermost operators, and device time of what they launched."""
        threads = collections.defaultdict(list)
        for event in events:
            if str(event.get("cat", "")).lower() in HOST and not is_step(event):
                threads[(event["pid"], event["tid"])].append((event["ts"], -event["dur"]))
        total = 0
        for thread, found in threads.items():
            launches = sorted(self.launch.get(thread, []))
            at = 0
            end = float("-inf")
            for begin, negative in sorted(found):
                if begin < end:
                    continue  # within another
                end = begin - negative
                if not within(begin):
                    continue
                total -= negative
                while at < len(launches) and launches[at][0] < begin:
                    at += 1
                while at < len(launches) and launches[at][0] < end:
                    total += launches[at][1]
                    at += 1
        return total


def tracelens(path):
    from TraceLens import TreePerfAnalyzer  # pylint: disable=import-outside-toplevel,import-error
    with contextlib.redirect_stdout(open(os.devnull, "w", encoding="utf-8")):
        analyzer = TreePerfAnalyzer.from_file(str(path))
        frame = analyzer.get_df_kernel_launchers()
    by_operator = collections.Counter()
    for name, us in zip(frame["name"], frame["total_direct_kernel_time"]):
        by_operator[name] += us
    return by_operator


def hta(path):
    from hta.trace_analysis import TraceAnalysis  # pylint: disable=C0415,E0401
    with tempfile.TemporaryDirectory() as folder, \
            contextlib.redirect_stdout(open(os.devnull, "w", encoding="utf-8")):
        analysis = TraceAnalysis(trace_files={0: str(path)}, trace_dir=folder,
                                 include_last_profiler_step=True)
        frame = analysis.t.get_trace(0)
        symbols = analysis.t.symbol_table.sym_table
    device = frame[frame["stream"] >= 0]
    names = [symbols[index] for index in device["name"]]
    by_kernel = collections.Counter()
    for name, us, category in zip(names, device["dur"], device["cat"]):
        if symbols[category].lower() in DEVICE:
            by_kernel[name] += us
    return by_kernel


def attempt(function, path):
    try:
        return function(path)
    except BaseException as fault:  # pylint: disable=broad-exception-caught
        return f"{type(fault).__name__}: {str(fault).splitlines()[0][:60] if str(fault) else ''}"


def percent(a, b):
    return 0.0 if a == b else 100 * (a - b) / b if b else float("inf")


def differences(mine, theirs, words):
    """Names whose sums differ by more than 0.1 % (and 1 us)."""
    for name in sorted(set(mine) | set(theirs)):
        if abs(mine[name] - theirs[name]) > max(1e-3 * abs(theirs[name]), 1):
            yield f"  {words}: {name[:70]}: ours {mine[name]:.1f} us, theirs {theirs[name]:.1f} us"


def compare(path, name, options):
    answer = ours(options.binary, path)
    if answer is None:
        return f"{name}: not read", []
    direct = Direct(events_of(path))
    notes = []
    kernels = collections.Counter()
    for row in answer["kernels"]:
        kernels[row["name"]] += 1e3 * row["kernel_ms"]
    operators = collections.Counter(
        {row["name"]: 1e3 * row["kernel_ms"] for row in answer["operators"]})
    has_device = bool(direct.by_kernel) or bool(direct.outside)
    line = [name, f"{answer['kernel_time']['total_ms']:.3f}"]
    if has_device:
        line.append(f"{percent(sum(kernels.values()), sum(direct.by_kernel.values())):+.3f}")
        notes += differences(kernels, direct.by_kernel, "direct")
    else:
        line.append("no device")
    line.append(f"{percent(answer['nongemm_bench']['total_ms'], direct.paper_ms):+.3f}")
    if options.hta and has_device:
        found = attempt(hta, path)
        if isinstance(found, str):
            line.append(found)
        else:
            everything = kernels + direct.outside  # HTA counts what was launched before the steps
            line.append(f"{percent(sum(everything.values()), sum(found.values())):+.3f}")
            notes += list(differences(everything, found, "HTA"))[:5]
    if options.tracelens and has_device:
        found = attempt(tracelens, path)
        if isinstance(found, str):
            line.append(found)
        else:
            linked = collections.Counter({key: operators[key] for key in found})
            line.append(f"{percent(sum(linked.values()), sum(found.values())):+.3f}")
            notes += list(differences(linked, found, "TraceLens"))[:5]
    return ",".join(line), notes


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--tracelens")
    parser.add_argument("--hta")
    parser.add_argument("--only", default="")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    sys.path[:0] = [folder for folder in (options.tracelens, options.hta) if folder]
    print("trace,kernel_ms,direct_pct,paper_formula_pct,hta_pct,tracelens_operators_pct")
    for path in traces(options.folder):
        name = str(path.relative_to(options.folder))
        if options.only not in name:
            continue
        line, notes = compare(path, name, options)
        print(line, flush=True)
        for note in notes:
            print(note, flush=True)


if __name__ == "__main__":
    main()
