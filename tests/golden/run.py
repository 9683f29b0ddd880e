#!/usr/bin/env python3
"""Runs golden cases: a command of the program, held against what it is known to print.

A case is a folder with
  cmd               the arguments, one a line
  exit              the exit code expected (0 where the file is missing)
  stdin             what it reads (nothing, where missing)
  expected.stdout   what it prints, or
  expected.json     the same for --json: compared as values, so neither order nor spacing matters
  expected.stderr   what it says on stderr; not looked at where missing
  expected/NAME     a file that it writes
  mask              regular expressions, one a line, for what may differ from run to run: in text
                    each match is masked, in JSON the value of each key that matches as a whole
  anything else     files for the command to read
The command runs in a throw-away copy of the folder with an empty home, so it can reach nothing that
is not in the case.

Usage: run.py --binary PATH [--update] [CASE...]   (all cases of this folder, where none is named)
"""

import argparse
import difflib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
MASKED = "<masked>"
# What differs from run to run in every case.
MASKED_KEYS = ["version", "tool_version", "date", "host", "elapsed_seconds", "elapsed_ms"]
MASKED_TEXT = [r"(?<=headroom )\d+\.\d+\.\d+"]
TIMEOUT_SECONDS = int(os.environ.get("HEADROOM_GOLDEN_SECONDS", "60"))  # of one program
REL_TOLERANCE = 1e-9  # for fractions; integers must be equal


def read_lines(path):
    return path.read_text().splitlines() if path.exists() else []


def mask_text(text, masks):
    for pattern in masks + MASKED_TEXT:
        text = re.sub(pattern, MASKED, text, flags=re.MULTILINE)
    return text


def mask_json(value, masks):
    if isinstance(value, dict):
        return {key: MASKED if any(re.fullmatch(m, key) for m in masks + MASKED_KEYS)
                else mask_json(inner, masks) for key, inner in value.items()}
    if isinstance(value, list):
        return [mask_json(inner, masks) for inner in value]
    return value


def same(a, b):
    """Equal as JSON values, fractions to within REL_TOLERANCE."""
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=REL_TOLERANCE)
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def pretty(value):
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def diff(name, expected, actual):
    lines = difflib.unified_diff(expected.splitlines(True), actual.splitlines(True),
                                 f"{name} expected", f"{name} actual")
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def run(binary, case, work):
    shutil.copytree(case, work, dirs_exist_ok=True)
    shutil.rmtree(work / "expected", ignore_errors=True)
    environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(work / ".home"),
                   "LC_ALL": "C.UTF-8", "TZ": "UTC", "COLUMNS": "100"}
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"):
        if name in os.environ:
            environment[name] = os.environ[name]
    stdin = case / "stdin"
    with open(stdin if stdin.exists() else os.devnull, "rb") as source:
        return subprocess.run([binary, *read_lines(case / "cmd")], cwd=work, env=environment,
                              stdin=source, capture_output=True, timeout=TIMEOUT_SECONDS,
                              check=False)


class Case:
    """One case being checked or, with `update`, rewritten."""

    def __init__(self, folder, update):
        self.folder, self.update = folder, update
        self.masks = read_lines(folder / "mask")
        self.faults = []

    def text(self, name, actual):
        actual = mask_text(actual, self.masks)
        path = self.folder / name
        if self.update:
            path.parent.mkdir(exist_ok=True)
            path.write_text(actual)
        elif path.read_text() != actual:
            self.faults.append(diff(name, path.read_text(), actual))

    def json(self, name, actual):
        path = self.folder / name
        try:
            value = mask_json(json.loads(actual), self.masks)
        except ValueError as error:
            self.faults.append(f"stdout is not JSON: {error}\n{actual[:2000]}\n")
            return
        if self.update:
            path.write_text(pretty(value))
        elif not same(expected := json.loads(path.read_text()), value):
            self.faults.append(diff(name, pretty(expected), pretty(value)))

    def exit(self, actual, stderr):
        path = self.folder / "exit"
        expected = int(path.read_text()) if path.exists() else 0
        if self.update:
            path.write_text(f"{actual}\n") if actual or path.exists() else None
        elif actual != expected:
            self.faults.append(f"exit code {actual}, expected {expected}\n{stderr[-2000:]}\n")

    def check(self, binary):
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            try:
                done = run(binary, self.folder, work)
            except subprocess.TimeoutExpired:
                self.faults.append(f"still running after {TIMEOUT_SECONDS} s\n")
                return
            stdout = done.stdout.decode(errors="replace")
            stderr = done.stderr.decode(errors="replace")
            self.exit(done.returncode, stderr)
            if (self.folder / "expected.json").exists():
                self.json("expected.json", stdout)
            elif (self.folder / "expected.stdout").exists() or self.update:
                self.text("expected.stdout", stdout)
            else:
                self.faults.append("it expects no output (--update writes expected.stdout)\n")
            if (self.folder / "expected.stderr").exists():
                self.text("expected.stderr", stderr)
            for path in sorted((self.folder / "expected").glob("*")):
                written = work / path.name
                if written.exists():
                    self.text(f"expected/{path.name}", written.read_text(errors="replace"))
                else:
                    self.faults.append(f"did not write {path.name}\n")


def main():
    parser = argparse.ArgumentParser(description="Runs golden cases.")
    parser.add_argument("--binary", required=True, type=Path)
    parser.add_argument("--update", action="store_true", help="rewrite what is expected")
    parser.add_argument("cases", nargs="*", type=Path)
    options = parser.parse_args()
    folders = options.cases or sorted(path.parent for path in HERE.glob("*/cmd"))
    failed = 0
    for folder in folders:
        case = Case(folder.resolve(), options.update)
        case.check(options.binary.resolve())
        if case.faults:
            failed += 1
            print(f"FAILED {folder.name}\n" + "".join(case.faults), end="")
    print(f"golden: {len(folders)} cases, {failed} failed")
    return 1 if failed or not folders else 0


if __name__ == "__main__":
    sys.exit(main())
