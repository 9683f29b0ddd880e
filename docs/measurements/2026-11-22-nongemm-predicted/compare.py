#!/usr/bin/env python3
"""Predicted beside measured: compare.py HEADROOM RESULTS.jsonl CALIBRATION.json [int8] > predicted.jsonl

Of each forward pass that RESULTS has of a whole model in fp32 (or in dynamic int8), by PyTorch, without fusion: the step that `headroom ops --model`
predicts of the same module, and the share of what is neither product nor attention in both. Each line as it is done; then a table.
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
GEMM = ("gemm", "attention")


def share(groups):
    whole = sum(groups.values())
    return 100 * (1 - sum(groups.get(name, 0) for name in GEMM) / whole)


def predicted(binary, name, calibration, quantize):
    target = f"{HERE / 'models.py'}:{name.replace('-', '_')}"
    done = subprocess.run([binary, "ops", "--model", target, "--phase", "prefill", "--device", "cpu", "--calibration",
                           calibration, "--dtype", "float32", "--quantize", quantize, "--json"], capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip()


def main():
    binary, results, calibration, quantize = [*sys.argv[1:], "none"][:4]
    rows = []
    for line in Path(results).read_text().splitlines():
        record = json.loads(line)
        setting = record.get("setting", {})
        wanted = {"engine": "pytorch", "phase": "forward", "dtype": "fp32", "quantize": quantize, "fusion": "none"}
        if record.get("status") != "measured" or record.get("layers") or wanted.items() - setting.items():
            continue
        found = predicted(binary, setting["model"], calibration, quantize)
        if isinstance(found, str):
            print(json.dumps({"model": setting["model"], "refused": found}), flush=True)
            continue
        measured = {group["name"]: group["ms"] for group in record["profile"]["groups"]}
        mine = {part["name"]: part["ms"] for part in found["parts"]}
        rows.append({"model": setting["model"], "measured_pct": share(measured), "predicted_pct": share(mine),
                     "measured_ms": record["seconds"] * 1e3, "kernels_ms": sum(measured.values()),
                     "predicted_ms": found["step_ms"], "low_ms": found["step_ms_low"], "high_ms": found["step_ms_high"],
                     "measured": measured, "predicted": mine})
        print(json.dumps(rows[-1]), flush=True)
    show(rows)


def show(rows):
    print("model         non-GEMM measured  predicted   kernels, ms  predicted, ms", file=sys.stderr)
    for row in rows:
        print(f"{row['model']:<14}{row['measured_pct']:>15.1f} %{row['predicted_pct']:>9.1f} %"
              f"{row['kernels_ms']:>13.0f}{row['predicted_ms']:>14.0f}", file=sys.stderr)
    off = statistics.median(abs(row["measured_pct"] - row["predicted_pct"]) for row in rows)
    time = statistics.median(abs(row["predicted_ms"] / row["kernels_ms"] - 1) for row in rows)
    print(f"{len(rows)} models: shares differ by {off:.1f} points in the median, times by {100 * time:.0f} %", file=sys.stderr)


if __name__ == "__main__":
    main()
