#!/usr/bin/env python3
"""The live loop on a real engine: llama.cpp's server with a model of random weights (tests/tools/llama_server.py).

    engine.py --binary build/dev/src/cli/headroom [--python PYTHON] [--runs 3] > engine.json

In each run: every usual limit is measured (`batch --batches all`), B_opt is found with few measurements (`batch
--url`), and a server that is started with B_opt slots is measured again, with as many in flight. Prints one JSON
object. The engine has processor 0 to itself and the client processor 1, as far as the system lets them (start it with
`nice -n -15`): its steps are its processor's. perf/README.md says what such numbers are
for.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

SERVER = Path(__file__).resolve().parents[2] / "tests/tools/llama_server.py"
LENGTHS = ("--input-tokens", "32", "--output-tokens", "64", "--length-variation", "0.3")


class Engine:
    def __init__(self, words, model, slots):
        self.words, self.model, self.slots = words, model, slots

    def __enter__(self):
        self.process = subprocess.Popen(
            ["taskset", "-c", "0", self.words.python, SERVER, "--slots", str(self.slots), "--threads", "1",
             "--model", self.model, "--layers", str(self.words.layers), "--width", str(self.words.width)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return self.process.stdout.readline().strip()

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=30)


def ask(words, url, *more):
    done = subprocess.run(["taskset", "-c", "1", words.binary, "batch", "--url", url, "--slo", words.slo, "--window",
                           str(words.window), "--time-limit", "1200", *LENGTHS, *more, "--json", "--quiet"],
                          capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def figures(told):
    return {"B_opt": told["batch_opt"]["value"], "low": told["batch_opt"]["low"], "high": told["batch_opt"]["high"],
            "target_ms": told["itl_target_ms"], "throughput": told["throughput_tokens_per_second"],
            "itl_ms": told["itl_ms"], "requests": told["live"]["requests"], "sure": told["live"]["is_sure"],
            "seconds": round(told["live"]["seconds"], 1),
            "points": [[m["concurrency"], round(m["throughput_tokens_per_second"], 1), round(m["itl_ms"], 3)]
                       for m in told["live"]["measurements"]]}


def one_run(words, model):
    most = str(words.slots)
    with Engine(words, model, words.slots) as url:
        sweep = figures(ask(words, url, "--most-batch", most, "--batches", "all"))
    with Engine(words, model, words.slots) as url:
        loop = figures(ask(words, url, "--most-batch", most))
    row = {"sweep": sweep, "loop": loop}
    if loop["B_opt"]:
        limit = loop["B_opt"]
        with Engine(words, model, limit) as url:
            again = ask(words, url, "--batches", f"1,{max(limit, 2)}")  # one alone makes no law
        measured = next(one for one in again["live"]["measurements"] if one["concurrency"] == limit)
        row["applied"] = {"slots": limit, "throughput": measured["throughput_tokens_per_second"],
                          "itl_ms": measured["itl_ms"],
                          "throughput_off_pct": round(100 * (measured["throughput_tokens_per_second"]
                                                             / loop["throughput"] - 1), 1),
                          "itl_off_pct": round(100 * (measured["itl_ms"] / loop["itl_ms"] - 1), 1)}
    grid = [point[0] for point in sweep["points"]]
    if sweep["B_opt"] in grid and loop["B_opt"] in grid:
        row["candidates_apart"] = abs(grid.index(sweep["B_opt"]) - grid.index(loop["B_opt"]))
    row["share_of_requests"] = round(loop["requests"] / sweep["requests"], 3)
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--python", default=sys.executable, help="one that has xllamacpp and gguf")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--window", type=float, default=6)
    parser.add_argument("--slo", default="itl=2x@8")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder) / "random.gguf")
        print(json.dumps({"runs": [one_run(words, model) for _ in range(words.runs)]}, indent=1))


if __name__ == "__main__":
    main()
