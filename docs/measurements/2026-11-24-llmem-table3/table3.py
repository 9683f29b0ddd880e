#!/usr/bin/env python3
"""LLMem's Table 3 (arXiv 2404.10933) beside what `headroom fit` predicts of the same choice.

For each model and each of the paper's three ways to use four V100 16 GB: the largest micro-batch that fits,
the step at that batch, and the epoch that this makes. Writes predicted.csv beside itself, and prints the
comparison. No GPU; a minute or two.

With --check nothing is written: what predicted.csv says of the paper's three ways has to come out again, the largest
batches and the order in time alike.

Usage: table3.py --binary build/dev/src/cli/headroom [--check]
"""

import argparse
import csv
import json
import subprocess
import sys
from pathlib import Path

EPOCH_SEQUENCES = 52_002  # Alpaca's
SEQUENCE = 512
OOM = None
# Seconds of an epoch, measured by the authors: 4DP, 2DP+2TP, 4TP.
PAPER = {
    "facebook/opt-1.3b": (688, 1616, 2186),
    "facebook/opt-2.7b": (OOM, 8174, 6038),
    "bigscience/bloom-1b1": (680, 1724, 2631),
    "bigscience/bloom-3b": (OOM, OOM, 14495),
    "microsoft/BioGPT-Large": (1022, 3315, 4773),
    "Salesforce/codegen-2B-nl": (OOM, 6314, 6244),
    "bigcode/gpt_bigcode-santacoder": (651, 1292, 1652),
    "EleutherAI/gpt-neo-1.3B": (768, 1686, 2372),
    "huggyllama/llama-7b": (OOM, OOM, OOM),
}
# What the authors ran: Colossal-AI's Gemini and its 1D tensor parallelism, PyTorch 2.0, transformers 4.29. Beside it
# what there is today.
THEIRS = ["--dtype", "fp16", "--torch", "2.0", "--transformers", "4.29"]
TODAY = ["--dtype", "fp32", "--mixed-precision", "fp16"]
WAYS = {
    "4DP": [*THEIRS, "--method", "gemini:4"],
    "2DP+2TP": [*THEIRS, "--method", "gemini:2,tp:2"],
    "4TP": [*THEIRS, "--method", "gemini:1,tp:4"],
    "fsdp2:4": [*TODAY, "--method", "fsdp2:4"],
}
PAPERS_WAYS = ("4DP", "2DP+2TP", "4TP")


def fit(binary, model, way, batch, search):
    command = [binary, "fit", model, "--device", "v100-sxm2-16gb", "--seq", str(SEQUENCE), "--checkpointing", "full",
               "--batch", str(batch), *WAYS[way], "--search", str(search).lower(), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        return None, done.stderr.strip().splitlines()[-1]
    return json.loads(done.stdout), ""


def row_of(binary, model, way):
    """The largest batch that is sure to fit, and the epoch at it."""
    row = {"model": model, "way": way, "largest_batch": "", "step_seconds": "", "epoch_seconds": "", "reason": ""}
    answer, row["reason"] = fit(binary, model, way, 1, True)
    if answer is None:
        return row
    largest = answer["largest_batch"] or {}
    batch = largest.get("value") or 0
    row["largest_batch"] = batch
    if batch == 0:
        return row
    answer, row["reason"] = fit(binary, model, way, batch, False)
    if answer is None:
        return row
    time = answer["time"]
    row["step_seconds"] = round(time["step_seconds"], 4)
    row["epoch_seconds"] = round(EPOCH_SEQUENCES * SEQUENCE / time["tokens_per_second"])
    return row


def words(seconds):
    return "OOM" if seconds in (None, "") else f"{seconds:,}"


def order(seconds):
    feasible = [(s, way) for way, s in seconds.items() if s not in (None, "")]
    return [way for _, way in sorted(feasible)]


def orders_and_batches(rows):
    """What --check holds: of each model the ways in order of their epochs, and each way's largest batch."""
    return {model: (order({way: rows[model, way]["epoch_seconds"] for way in PAPERS_WAYS}),
                    {way: str(rows[model, way]["largest_batch"]) for way in PAPERS_WAYS}) for model in PAPER}


def check(binary, table):
    with open(table, newline="", encoding="utf-8") as file:
        said = {(row["model"], row["way"]): {**row, "epoch_seconds": row["epoch_seconds"] and int(row["epoch_seconds"])}
                for row in csv.DictReader(file)}
    said = orders_and_batches(said)
    now = orders_and_batches({(model, way): row_of(binary, model, way) for model in PAPER for way in PAPERS_WAYS})
    differing = [model for model in PAPER if said[model] != now[model]]
    for model in differing:
        print(f"{model}: {table.name} has {said[model]}, now {now[model]}; run without --check, and the page's table "
              "and counts are to be what it prints", file=sys.stderr)
    return 1 if differing else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--binary", default="headroom")
    parser.add_argument("--check", action="store_true", help="hold predicted.csv against the program, and write nothing")
    arguments = parser.parse_args()
    binary = arguments.binary
    table = Path(__file__).with_name("predicted.csv")
    if arguments.check:
        return check(binary, table)
    rows = {(model, way): row_of(binary, model, way) for model in PAPER for way in WAYS}
    with open(table, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(next(iter(rows.values()))))
        writer.writeheader()
        writer.writerows(rows.values())
    print("| model | measured: 4DP / 2DP+2TP / 4TP | predicted: the same (batch) | fsdp2:4 | first | out of memory |")
    print("|---|---|---|---|---|---|")
    firsts = agreeing = cells = pairs = alike = 0
    for model, paper in PAPER.items():
        measured = dict(zip(PAPERS_WAYS, paper))
        mine = {way: rows[model, way] for way in WAYS}
        epochs = {way: mine[way]["epoch_seconds"] for way in PAPERS_WAYS}
        one, two = order(measured), order(epochs)
        same_first = one[:1] == two[:1]
        asked = [way for way in PAPERS_WAYS if not mine[way]["reason"]]
        same = sum((measured[way] is None) == (epochs[way] == "") for way in asked)
        firsts += same_first
        both = [way for way in one if way in two]
        for i, way in enumerate(both):
            for later in both[i + 1:]:
                pairs += 1
                alike += two.index(way) < two.index(later)
        agreeing += same
        cells += len(asked)
        shown = " / ".join("refused" if mine[way]["reason"]
                           else f"{words(epochs[way])} ({mine[way]['largest_batch']})" for way in PAPERS_WAYS)
        today = mine["fsdp2:4"]
        print(f"| {model} | {' / '.join(words(s) for s in paper)} | {shown} "
              f"| {words(today['epoch_seconds'])} ({today['largest_batch']}) "
              f"| {'same' if same_first else ' '.join(two[:1]) or 'none'} | {same} of {len(asked)} |")
    print(f"\nas measured: the first of {firsts} of {len(PAPER)} models; feasible or not {agreeing} of {cells}; the order of "
          f"{alike} of {pairs} pairs that are feasible in both")
    return 0


if __name__ == "__main__":
    sys.exit(main())
