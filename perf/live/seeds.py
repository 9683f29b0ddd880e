#!/usr/bin/env python3
"""The live loop on hidden laws: is B_opt right, and what share of a sweep's requests did it take?

    seeds.py --binary build/dev/src/cli/headroom --server build/dev/tests/headroom_test_server

Each seed is a test server with a law of its own and a target. The truth is the law's: with B in
flight a step takes base + per_sequence B + bend log2 B, and prompts add prefill I B / O. Prints one
JSON object; perf/README.md says what such numbers are for.
"""

import argparse
import json
import math
import random
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

INPUT, OUTPUT, MOST, WINDOW = 64, 96, 256, 4


def limits():
    powers = [2 ** i for i in range(9)]
    return sorted({b for p in powers for b in (p, p + p // 2) if (b == p or p >= 2) and b <= MOST})


def law_of(seed):
    draw = random.Random(seed)
    base = 3 * (10 / 3) ** draw.random()
    half = 15 * 10 ** draw.random()
    return {"base_ms": base, "per_sequence_ms": base / half, "bend_ms": 0.02 * base * draw.random(),
            "prefill_us": 2, "noise": 0.02, "seed": seed}, round(1.3 + 2.7 * draw.random(), 2)


def step(law, batch):
    return (law["base_ms"] + law["per_sequence_ms"] * batch + law["bend_ms"] * math.log2(batch)
            + law["prefill_us"] * 1e-3 * INPUT * batch / OUTPUT)


def best(law, multiple):
    return max(b for b in limits()
               if step(law, b) <= multiple * step(law, 32) and step(law, 1) / step(law, b) > 0.1)


def margin(law, multiple):
    """How near the target, or the efficiency, the nearest candidate is."""
    near = [abs(math.log(step(law, b) / (multiple * step(law, 32)))) for b in limits()]
    near += [abs(math.log(step(law, 1) / step(law, b) / 0.1)) for b in limits()]
    return min(near)


def run(words, seed):
    law, multiple = law_of(seed)
    server = subprocess.Popen([words.server, *(f"{k}={v}" for k, v in law.items())],
                              stdout=subprocess.PIPE, text=True)
    url = server.stdout.readline().strip()
    done = subprocess.run([words.binary, "batch", "--url", url, "--slo", f"itl={multiple}x@32",
                           "--input-tokens", str(INPUT), "--output-tokens", str(OUTPUT),
                           "--most-batch", str(MOST), "--window", str(WINDOW), "--json", "--quiet",
                           "--seed", str(seed)], capture_output=True, text=True, check=False)
    server.send_signal(signal.SIGTERM)
    served = json.loads(server.communicate()[0])
    row = {"seed": seed, "target": f"{multiple}x@32", "truth": best(law, multiple),
           "margin_pct": round(100 * margin(law, multiple), 1), "exit": done.returncode,
           "server_most_late_ms": round(served["most_late_ms"], 1)}
    if not done.stdout:
        return {**row, "error": done.stderr.strip()}
    told = json.loads(done.stdout)
    live = told["live"]
    rate = {m["concurrency"]: m["throughput_tokens_per_second"] for m in live["measurements"]}
    # A sweep over all limits, each begun afresh: its streams, and what ends in a window as long as
    # ours were on average.
    window = sum(m["window_seconds"] for m in live["measurements"]) / len(live["measurements"])
    sweep = sum(b + b / step(law, b) * 1e3 * window / OUTPUT for b in limits())
    one = told["batch_opt"]
    return {**row, "B_opt": one["value"], "low": one["low"], "high": one["high"],
            "sure": live["is_sure"], "measured": list(rate), "requests": live["requests"],
            "sweep_requests": round(sweep), "share": round(live["requests"] / sweep, 3),
            "seconds": round(live["seconds"], 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--server", required=True)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1)
    words = parser.parse_args()
    with ThreadPoolExecutor(words.jobs) as pool:
        rows = list(pool.map(lambda seed: run(words, seed), range(words.seeds)))
    grid = limits()
    known = [row for row in rows if row.get("B_opt")]
    shares = sorted(row["share"] for row in known)
    print(json.dumps({
        "right": sum(row["B_opt"] == row["truth"] for row in known), "of": len(rows),
        "neighbouring": sum(abs(grid.index(row["B_opt"]) - grid.index(row["truth"])) == 1
                            for row in known if row["B_opt"] in grid),
        "truth_in_interval": sum((row["low"] or 0) <= row["truth"] <= (row["high"] or 0)
                                 for row in known),
        "sure": sum(row["sure"] for row in known),
        "share_median": shares[len(shares) // 2] if shares else None,
        "share_most": shares[-1] if shares else None, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
