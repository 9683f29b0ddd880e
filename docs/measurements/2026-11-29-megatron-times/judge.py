#!/usr/bin/env python3
"""Published steps of Megatron-LM beside what `headroom fit` says of them.

    python3 judge.py --headroom build/dev/src/cli/headroom --output rows.csv

Half of the models is learned from, half is judged on: in the alphabet's order of their names every other one, from the
first on, is learned from, whatever GPU and setting (runs.py has them). Steps whose tensor parallel sending ran beside
products (--tp-comm-overlap) are neither: that is not modelled, and they are asked without it ("overlapped").
"""

import argparse
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from runs import A100, GB200, H100, HOST, RUNS

GPUS_OF_A_MACHINE = 8
LINKS = {A100: "ib-200g", H100: "ib-400g", GB200: "ib-400g"}
PEAKS = {A100: 312e12, H100: 989.4e12}
MODELS = sorted({run.model for run in RUNS})
FIELDS = ("part", "model", "source", "gpu", "gpus", "setting", "measured", "predicted", "error_pct", "low", "high",
          "compute", "communication", "exposed", "pipeline", "host", "kernels", "asked")


def part_of(run):
    if run.model not in MODELS:
        return "host"
    if "plain-tp" in run.asked:
        return "overlapped"
    return "learned" if MODELS.index(run.model) % 2 == 0 else "aside"


def word_of(run, name):
    words = run.sizes.split()
    return int(words[words.index(f"--{name}") + 1])


def model_flops(run):
    """Of a step, without what is computed again: arXiv 2104.04473, section 5.1, and 2205.05198, appendix A."""
    layers, hidden, vocabulary = (word_of(run, name) for name in ("num-layers", "hidden-size", "vocab-size"))
    tokens = run.batch * run.seq
    return 72 * tokens * layers * hidden**2 * (1 + run.seq / (6 * hidden) + vocabulary / (12 * hidden * layers))


def measured_seconds(run):
    if run.seconds:
        return run.seconds
    if run.tokens:
        return run.batch * run.seq / (run.gpus * run.tokens)
    rate = run.tflops * 1e12 if run.tflops else run.mfu * PEAKS[run.gpu]
    return model_flops(run) / (run.gpus * rate)


def setting_of(run):
    words = [f"{name}{count}" for name, count in (("tp", run.tp), ("pp", run.pp), ("cp", run.cp), ("ep", run.ep)) if count > 1]
    if run.chunk:
        words.append(f"chunks of {run.chunk}")
    words.append("fp8" if "--fp8" in run.more else "16 bits")
    return " ".join(words + [f"{run.micro} x {run.seq}, batch {run.batch}"])


def predict(headroom, run, environment=None):
    program = "pretrain_t5.py" if "--encoder-num-layers" in run.sizes else "pretrain_gpt.py"
    arguments = run.arguments()
    if program == "pretrain_t5.py":
        arguments = arguments.replace("--seq-length", "--encoder-seq-length")
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as script:
        script.write(f"{program} {arguments}\n")
        script.flush()
        command = [headroom, "fit", "--from", script.name, "--device", run.gpu, "--gpus", str(run.gpus),
                   "--search", "false", "--json"]
        if run.gpus > GPUS_OF_A_MACHINE:
            command += ["--nodes", str(run.gpus // GPUS_OF_A_MACHINE), "--link", LINKS[run.gpu]]
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              env={**os.environ, **(environment or {})})
    if done.returncode not in (0, 1):
        return None, done.stderr.strip().splitlines()[0]
    answer = json.loads(done.stdout)
    if not answer.get("time"):
        return None, next((note for note in answer["notes"] if note.startswith("no step time")), "no time")
    return answer, ""


def rows_of(headroom, environment=None, part=None):
    for run in RUNS + HOST:
        if part not in (None, part_of(run)):
            continue
        answer, reason = predict(headroom, run, environment)
        row = {"part": part_of(run), "model": run.model, "source": run.source, "gpu": run.gpu, "gpus": run.gpus,
               "setting": setting_of(run), "measured": measured_seconds(run), "asked": " ".join(run.asked)}
        if answer is None:
            print(f"{run.model}, {setting_of(run)}: {reason}", file=sys.stderr)
            yield row
            continue
        time = answer["time"]
        seconds = time["step_seconds"]
        yield {**row, "predicted": seconds, "low": time["step_seconds_low"], "high": time["step_seconds_high"],
               "error_pct": 100 * (seconds / row["measured"] - 1), "compute": time["compute_seconds"],
               "communication": time["communication_seconds"], "exposed": time["exposed_communication_seconds"],
               "pipeline": time["pipeline_waiting_seconds"], "host": time["host_seconds"], "kernels": time["kernels"]}


def is_inside(row):
    return row["low"] is not None and row["low"] <= row["measured"] <= row["high"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headroom", required=True)
    parser.add_argument("--output", type=pathlib.Path)
    arguments = parser.parse_args()
    rows = list(rows_of(arguments.headroom))
    print("| part | model | source | GPU | setting | measured s | predicted s | error | inside |")
    print("|---|---|---|---|---|---|---|---|---|")
    known = sorted((row for row in rows if "predicted" in row), key=lambda row: (row["part"], row["model"]))
    for row in known:
        print("| {part} | {model} | {source} | {gpus} {gpu} | {setting} | {measured:.3f} | {predicted:.3f} | "
              "{error_pct:+.0f} % |".format(**row), "yes |" if is_inside(row) else "no |")
    for part in ("learned", "aside", "overlapped"):
        errors = [abs(row["error_pct"]) for row in known if row["part"] == part]
        inside = [is_inside(row) for row in known if row["part"] == part]
        print(f"{part}: {len(errors)} rows, median error {statistics.median(errors):.1f} %, worst {max(errors):.1f} %, "
              f"{sum(inside)} inside")
    if arguments.output:
        with arguments.output.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            for row in rows:
                writer.writerow({key: f"{value:.5g}" if isinstance(value, float) else value for key, value in row.items()})


if __name__ == "__main__":
    main()
