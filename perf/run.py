#!/usr/bin/env python3
"""Runs the benchmarks and prints ratios; perf/README.md says how they are named.

Usage: run.py [--smoke] [--json FILE] [--filter REGEX]
"""

import argparse
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
BUILD = REPO / "build" / "release"
SCHEMA = "headroom.perf/1"
TO_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def build():
    configure = ["cmake", "-S", str(REPO), "--preset", "release", "-DHEADROOM_PERF=ON"]
    compile_all = ["cmake", "--build", str(BUILD),
                   "--target", "headroom_perf_targets", "headroom_cli"]
    for command in (configure, compile_all):
        done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stdout[-4000:] + done.stderr[-4000:]
            sys.exit(f"perf: {shlex.join(command)} failed\n{said}")


def machine():
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    commit = subprocess.run(["git", "-C", str(REPO), "describe", "--always", "--dirty"],
                            capture_output=True, text=True, check=False).stdout.strip()
    return {"cpu": cpu, "cores": os.cpu_count(), "system": platform.platform(), "commit": commit,
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


def run_benchmark(program, smoke, wanted):
    """The rows of one Google Benchmark program: the median of its repetitions."""
    command = [str(program), "--benchmark_format=json", f"--benchmark_filter={wanted}"]
    command += ["--benchmark_min_time=0.01"] if smoke else [
        "--benchmark_repetitions=5", "--benchmark_report_aggregates_only=true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"perf: {program.name} failed\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    if not done.stdout.strip():  # nothing in it matches the filter
        return []
    rows = []
    for row in json.loads(done.stdout)["benchmarks"]:
        if row.get("error_occurred"):
            sys.exit(f"perf: {row['name']}: {row.get('error_message')}")
        if row.get("run_type") == "aggregate" and row.get("aggregate_name") != "median":
            continue
        entry = {"name": row.get("run_name", row["name"]),
                 "seconds": row["real_time"] * TO_SECONDS[row["time_unit"]]}
        if "target_seconds" in row:
            entry["target_seconds"] = row["target_seconds"]
        rows.append(entry)
    return rows


def run_command(spec, smoke):
    """One command of commands.json: median wall time and largest resident set over its runs."""
    seconds, resident = [], 0
    for _ in range(2 if smoke else 15):
        started = time.perf_counter()
        with subprocess.Popen([REPO / spec["command"][0], *spec["command"][1:]],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            said = process.stderr.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        seconds.append(time.perf_counter() - started)
        resident = max(resident, usage.ru_maxrss * 1024)
        if process.returncode not in spec.get("exit", [0]):
            said = said.decode(errors="replace")[-2000:]
            sys.exit(f"perf: {spec['name']} exited with {process.returncode}\n{said}")
    goals = {key: value for key, value in spec.items() if key.startswith("target_")}
    return {"name": spec["name"], "seconds": statistics.median(seconds),
            "resident_bytes": resident, **goals}


def add_ratios(rows):
    """peer / ours for "SUBJECT/headroom..." beside "SUBJECT/PEER...", and target / measured."""
    by_name = {row["name"]: row for row in rows}
    for row in rows:
        subject, _, rest = row["name"].partition("/")
        who, _, arguments = rest.partition("/")
        if who == "headroom":
            for other in by_name.values():
                parts = other["name"].split("/", 2)
                if parts[0] == subject and len(parts) > 1 and parts[1] != "headroom" and \
                        "/".join(parts[2:]) == arguments:
                    row.setdefault("faster_than", {})[parts[1]] = other["seconds"] / row["seconds"]
        if "target_seconds" in row:
            row["target_over_seconds"] = row["target_seconds"] / row["seconds"]
        if "target_resident_bytes" in row:
            row["target_over_resident"] = row["target_resident_bytes"] / row["resident_bytes"]
    return rows


def notes_on(row):
    """What the table says behind a row's time."""
    for peer, ratio in row.get("faster_than", {}).items():
        yield f"{ratio:.2f}x the speed of {peer}"
    if "target_seconds" in row:
        ratio = row["target_over_seconds"]
        verdict = f"met {ratio:.2f}x" if ratio >= 1 else f"MISSED by {1 / ratio:.2f}x"
        yield f"target {row['target_seconds'] * 1e3:g} ms {verdict}"
    if "resident_bytes" in row:
        yield f"{row['resident_bytes'] / 2**20:.0f} MiB resident"
    if row.get("target_over_resident", 1) < 1:
        yield f"target {row['target_resident_bytes'] / 2**20:.0f} MiB MISSED"


def show(rows):
    for row in rows:
        print(f"{row['name']:<52} {row['seconds'] * 1e3:12.4f} ms  {'; '.join(notes_on(row))}")


def main():
    parser = argparse.ArgumentParser(description="Runs the benchmarks and prints ratios.")
    parser.add_argument("--smoke", action="store_true", help="once: do they run at all?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--filter", default=".", metavar="REGEX",
                        help="only what matches: programs, benchmarks, commands")
    options = parser.parse_args()
    build()
    rows = []
    for program in sorted((BUILD / "perf").glob("headroom_perf_*")):
        if os.access(program, os.X_OK) and program.is_file():
            is_named = re.search(options.filter, program.name.removeprefix("headroom_perf_"))
            rows += run_benchmark(program, options.smoke, "." if is_named else options.filter)
    for spec in json.loads((REPO / "perf" / "commands.json").read_text()):
        if re.search(options.filter, spec["name"]):
            rows.append(run_command(spec, options.smoke))
    show(add_ratios(rows))
    if options.json:
        answer = {"schema": SCHEMA, "machine": machine(), "smoke": options.smoke, "results": rows}
        options.json.write_text(json.dumps(answer, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
