#!/usr/bin/env python3
"""`headroom ops` beside its peers on the same trace: time and memory of each, and the ratios, as JSON.

Peers are Python programs of others, run from a checkout of theirs where one is given:
  --tracelens FOLDER   github.com/AMD-AGI/TraceLens: reads the trace, links kernels, sums operators
  --hta FOLDER         github.com/facebookresearch/HolisticTraceAnalysis: reads it, sums kernels
--python is the interpreter that has what they need (pandas, and more). CPU seconds are compared, as
wall time on a busy machine says little. Each runs --runs times; the least counts.

Usage: run.py --binary PATH [--python PATH] [--tracelens FOLDER] [--hta FOLDER] [--runs N] TRACE
"""

import argparse
import json
import os
import subprocess
import sys

TRACELENS = """
import sys
from TraceLens import TreePerfAnalyzer
analyzer = TreePerfAnalyzer.from_file(sys.argv[1])
analyzer.get_df_kernel_launchers_summary(analyzer.get_df_kernel_launchers())
"""
HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
analysis.get_gpu_kernel_breakdown(visualize=False)
"""


def measure(command, environment=None):
    """CPU seconds and peak memory of one run, or None where it fails."""
    child = os.fork()
    if child == 0:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(done.stderr[-600:], file=sys.stderr)
        os._exit(0 if done.returncode == 0 else 1)
    _, status, usage = os.wait4(child, 0)
    own = usage.ru_utime + usage.ru_stime
    return None if status != 0 else (own, usage.ru_maxrss * 1024)


def best(command, runs, environment=None):
    results = [result for _ in range(runs) if (result := measure(command, environment))]
    if not results:
        return None
    return {"cpu_seconds": min(cpu for cpu, _ in results),
            "peak_rss_bytes": min(memory for _, memory in results)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--tracelens")
    parser.add_argument("--hta")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("trace")
    options = parser.parse_args()
    report = {"trace": os.path.basename(options.trace),
              "headroom": best([options.binary, "ops", options.trace, "--json"], options.runs)}
    for name, folder, program in (("tracelens", options.tracelens, TRACELENS),
                                  ("hta", options.hta, HTA)):
        if folder is None:
            continue
        environment = dict(os.environ, PYTHONPATH=folder)
        peer = best([options.python, "-c", program, options.trace], options.runs, environment)
        # What the interpreter and its imports cost is theirs too, but is told apart.
        imports = "\n".join(line for line in program.splitlines() if "import" in line)
        idle = best([options.python, "-c", imports], options.runs, environment)
        report[name] = peer
        if peer and idle and report["headroom"]:
            ours = report["headroom"]
            report[name + "_imports"] = idle
            report[name + "_ratio"] = {
                "cpu": peer["cpu_seconds"] / ours["cpu_seconds"],
                "cpu_without_imports":
                    (peer["cpu_seconds"] - idle["cpu_seconds"]) / ours["cpu_seconds"],
                "memory": peer["peak_rss_bytes"] / ours["peak_rss_bytes"]}
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
