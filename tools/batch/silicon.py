#!/usr/bin/env python3
"""Holds `headroom batch` against other people's servers: time per token by what was in flight.

    python3 tools/batch/silicon.py --binary build/dev/src/cli/headroom \\
        ../shared/data/performance/aiconfigurator/silicon_sample.csv > rows.csv

Each setting (model, GPU, precision, tensor parallel, lengths) is asked once, without any measurement of it, and every
row of it is a limit of its curve. A second time, where a curve has four batches at least, its two ends are given as
points, and the others judge. Rows are read as silicon_rows.py says; what stands apart, and what is not predicted, is
counted, by reason. With --held-out each model is asked under the law that was fitted without it (host_law.py writes
them); without it under what the program has, which is calibrated on all of them. The summary goes to stderr.
"""

import argparse
import collections
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import silicon_rows

DEVICES = {"h100_sxm": "h100-sxm-80gb", "h200_sxm": "h200-sxm-141gb", "b200_sxm": "b200-sxm-180gb",
           "b300_sxm": "b300-sxm-288gb", "gb200": "gb200-186gb",
           "gb300": "b300-sxm-288gb"}
# Names that the built-in models have otherwise; the same architecture.
LIKE = {"nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Llama-3.1-8B", "nvidia/Qwen3-32B-NVFP4": "Qwen/Qwen3-32B",
        "Qwen/Qwen3-235B-A22B-FP8": "Qwen/Qwen3-235B-A22B", "nvidia/DeepSeek-V3.1-NVFP4": "deepseek-ai/DeepSeek-V3"}
# The same architecture under two names; host_law.py leaves both out together.
FAMILY = {"deepseek-ai/DeepSeek-V3": "deepseek-ai/DeepSeek-R1", "nvidia/DeepSeek-V3.1-NVFP4": "deepseek-ai/DeepSeek-R1",
          "nvidia/Qwen3-32B-NVFP4": "Qwen/Qwen3-32B"}
DENSE = ("Qwen/Qwen3-32B", "meta-llama/Llama-3.1-70B", "meta-llama/Llama-3.1-8B")
SETTING = silicon_rows.SETTING


def is_dense(row):
    return LIKE.get(row["model_path"], row["model_path"]) in DENSE


def flags(setting, more=()):
    model = LIKE.get(setting["model_path"], setting["model_path"])
    words = [model, "--device", DEVICES[setting["system"]], "--input-tokens", setting["isl"], "--output-tokens",
             setting["osl"], "--length-variation", "0", "--min-efficiency", "0"]
    if setting["precision"] == "fp8":
        words += ["--quantize", "fp8"]
    if setting["precision"] == "fp4":
        words += ["--quantize", "fp4"]
    if setting["kv_dtype"]:
        words += ["--kv-dtype", setting["kv_dtype"]]
    return words + ["--tp", setting["tp_size"], "--pp", setting["pp_size"], *more]


def environment(words, model):
    """With the laws that the model had no part in."""
    if not words.held_out:
        return None
    left_out = words.held_out / f"{FAMILY.get(model, model).replace('/', '+')}.json"
    return {**os.environ, "HEADROOM_TIMING": str(left_out)} if left_out.exists() else None


def ask(binary, words, env=None):
    done = subprocess.run([binary, "batch", *words, "--json"], capture_output=True, text=True, check=False, env=env)
    if not done.stdout:
        return None, done.stderr.strip().split("\n")[0].removeprefix("headroom: error: ")
    told = json.loads(done.stdout)
    return {row["batch"]: row["itl_ms"] for row in told["curve"]}, "; ".join(told["notes"])


def of_setting(words, setting, rows):
    out = []
    row_of = lambda row, **more: {**{name: setting[name] for name in SETTING}, "batch": row["batch_size"],
                                  "measured_ms": float(row["silicon_tpot_ms"]), **more}
    if int(setting["attention_dp_size"] or 1) > 1:
        return [row_of(row, status="unsupported", reason="attention is data parallel") for row in rows]
    curve, reason = ask(words.binary, flags(setting, words.more), environment(words, setting["model_path"]))
    if curve and words.held_out and environment(words, setting["model_path"]) is None:
        sys.exit(f"{words.held_out} has no law without {setting['model_path']}: host_law.py writes it")
    for row in rows:
        batch = int(row["batch_size"])
        if not curve or batch not in curve:
            why = "the cache holds no such batch" if curve else reason or "the model does not fit"
            out.append(row_of(row, status="unsupported", reason=why))
            continue
        at = curve[batch]
        out.append(row_of(row, status="ok", predicted_ms=at["expected"], low_ms=at["low"], high_ms=at["high"]))
    known = {}
    for row in rows:
        known.setdefault(int(row["batch_size"]), []).append(float(row["silicon_tpot_ms"]))
    known = {batch: statistics.median(times) for batch, times in known.items()}
    if len(known) >= 4 and curve:
        ends = sorted(known)[::len(known) - 1]
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as points:
            points.write("batch,throughput_tokens_per_second,itl_ms\n")
            for batch in ends:
                points.write(f"{batch},{batch / known[batch] * 1e3},{known[batch]}\n")
            points.flush()
            prior = ["--min-efficiency", "0"] if words.line else flags(setting, words.more)
            from_ends, _ = ask(words.binary, [*prior, "--points", points.name],
                               environment(words, setting["model_path"]))
        for row in out:
            batch = int(row["batch"])
            if from_ends and batch in from_ends and batch not in ends:
                row["from_ends_ms"] = from_ends[batch]["expected"]
                row["from_ends_against_ms"] = known[batch]
    return out


def error(row, of="predicted_ms", against="measured_ms"):
    return abs(row[of] / row[against] - 1) * 100


def said(name, errors):
    if not errors:
        return f"{name}: none"
    errors = sorted(errors)
    return f"{name}: {len(errors)} rows, median {statistics.median(errors):.1f} %, p90 {errors[int(0.9 * len(errors))]:.1f} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--former", dest="more", action="store_const", const=["--engine", "vllm@0.6"], default=[],
                        help="with the host and the sampling of vLLM 0.6.3")
    parser.add_argument("--held-out", type=pathlib.Path, help="a folder that host_law.py wrote")
    parser.add_argument("--line", action="store_true",
                        help="both ends measured: a line, not bent as predicted steps are")
    parser.add_argument("--as-written", action="store_true", help="the rows as they are in the file")
    parser.add_argument("file")
    words = parser.parse_args()
    rows, apart = silicon_rows.read(words.file, words.as_written)
    with ThreadPoolExecutor(words.jobs) as pool:
        results = pool.map(lambda one: of_setting(words, dict(zip(SETTING, one[0])), one[1]),
                           silicon_rows.settings(rows).items())
        out = [row for result in results for row in result]
    names = [*SETTING, "batch", "measured_ms", "status", "predicted_ms", "low_ms", "high_ms", "from_ends_ms",
             "from_ends_against_ms", "reason"]
    writer = csv.DictWriter(sys.stdout, names)
    writer.writeheader()
    for row in out:
        writer.writerow({name: f"{value:.5g}" if isinstance(value, float) else value for name, value in row.items()})
    good = [row for row in out if row["status"] == "ok"]
    for name, chosen in (("dense", [r for r in good if is_dense(r)]), ("MoE", [r for r in good if not is_dense(r)])):
        print(said(name, [error(row) for row in chosen]), file=sys.stderr)
        inside = [row["low_ms"] <= row["measured_ms"] <= row["high_ms"] for row in chosen]
        if inside:
            print(f"  inside the 90 % interval: {100 * statistics.fmean(inside):.1f} %; it is from"
                  f" {statistics.median(row['low_ms'] / row['predicted_ms'] for row in chosen):.2f} to"
                  f" {statistics.median(row['high_ms'] / row['predicted_ms'] for row in chosen):.2f} of the prediction"
                  " (medians)", file=sys.stderr)
        for model in sorted({row["model_path"] for row in chosen}):
            of_it = [row for row in chosen if row["model_path"] == model]
            inside = 100 * statistics.fmean(row["low_ms"] <= row["measured_ms"] <= row["high_ms"] for row in of_it)
            print("  " + said(model, [error(row) for row in of_it]) + f", {inside:.0f} % inside", file=sys.stderr)
        for precision in sorted({row["precision"] for row in chosen}):
            print("  " + said("precision " + (precision or "not said"),
                              [error(row) for row in chosen if row["precision"] == precision]), file=sys.stderr)
        ends = {tuple(row[n] for n in (*SETTING, "batch")): row for row in chosen if "from_ends_ms" in row}
        print("  " + said("both ends of its curve measured, the others",
                          [error(row, "from_ends_ms", "from_ends_against_ms") for row in ends.values()]),
              file=sys.stderr)
    for why, count in apart.items():
        print(f"apart, {why}: {count} rows", file=sys.stderr)
    reasons = collections.Counter((row["model_path"], row["reason"]) for row in out if row["status"] != "ok")
    for (model, reason), count in reasons.most_common():
        print(f"unsupported: {count} rows, {model}: {reason[:120]}", file=sys.stderr)


if __name__ == "__main__":
    main()
