#!/usr/bin/env python3
"""Makes the tables of nongemm-cpu.md from a run's records: nongemm-cpu.py HEADROOM FOLDER > nongemm-cpu.md

FOLDER, beside this file, holds results.jsonl, the records of `headroom bench nongemm`, and where settings were measured
several times a series of files for each way of measuring: again1.jsonl, again2.jsonl, ... Everything below is read from
them, the number of threads from their headers; how they were made is the folder's README's to say.
"""

import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
COLUMNS = [("pytorch", "none", "none", "PyTorch fp32"), ("pytorch", "int8", "none", "PyTorch int8"),
           ("onnxruntime", "none", "none", "ONNX Runtime fp32"), ("onnxruntime", "none", "all", "fused"),
           ("onnxruntime", "int8", "none", "int8"), ("onnxruntime", "int8", "all", "int8 fused")]


def answer_of(binary, file):
    done = subprocess.run([binary, "bench", "nongemm", "--results", str(file), "--json"], capture_output=True, text=True,
                          check=False)
    return json.loads(done.stdout)


def key_of(setting):
    return setting["model"], setting["engine"], setting["batch"], setting["dtype"], setting["quantize"], setting["fusion"]


def shares(binary, file):
    return {key_of(row["setting"]): row["nongemm_pct"] for row in answer_of(binary, file)["rows"]}


def of(part, whole):
    return f"{part} of {whole}"


def unclassified(rows):
    """The largest part of a setting's operators that no rule sorts, in percent."""
    worst = 0.0
    for row in rows:
        groups = {group["name"]: group["ms"] for group in row["groups"]}
        worst = max(worst, 100 * groups.get("unclassified", 0) / sum(groups.values()))
    return worst


class Series:
    """Runs of the same settings on as many threads: of each setting that all of them have, its shares."""

    def __init__(self, binary, name, files):
        self.name, self.runs = name, len(files)
        units = {json.loads(file.read_text().partition("\n")[0])["machine"]["units"] for file in files}
        if len(units) != 1:
            raise SystemExit(f"{name}*.jsonl: of {sorted(units)} threads, which are no runs of the same")
        self.threads = "one thread" if units == {1} else f"{units.pop()} threads"
        runs = [shares(binary, file) for file in files]
        self.shares = {key: [run[key] for run in runs] for key in sorted(set.intersection(*(set(run) for run in runs)))}

    def row(self):
        apart = [max(values) - min(values) for values in self.shares.values()]
        return (f"shares within 3 points over {self.runs} runs on {self.threads}", "all",
                f"{of(sum(value <= 3 for value in apart), len(apart))} settings; median {statistics.median(apart):.1f}, "
                f"most {max(apart):.2f} points")


def all_series(binary, folder):
    files = {}
    for file in sorted(folder.glob("*.jsonl")):
        numbered = re.fullmatch(r"(.*?)\d+", file.stem)
        if numbered:
            files.setdefault(numbered[1], []).append(file)
    return [Series(binary, name, of_name) for name, of_name in files.items()]


def summary(answer, agains):
    rows, effects = answer["rows"], answer["effects"]
    models = {engine: {row["setting"]["model"] for row in rows if row["setting"]["engine"] == engine}
              for engine in ("pytorch", "onnxruntime")}
    covered = {engine: [row["covered_pct"] for row in rows if row["setting"]["engine"] == engine] for engine in models}
    yield "models of 17", "all", ", ".join(f"{len(names)} in {engine}" for engine, names in models.items())
    yield ("share beside the paper's 11.3 to 73.6 %, its formula", "within",
           f"{of(effects['within'], effects['compared'])} settings within, {effects['below']} below, {effects['above']} above")
    yield ("int8 raises the share", "counted",
           f"{of(effects['int8_raised'], effects['int8_pairs'])} pairs; {effects['int8_speedup']:.2f} times as quick in the median")
    yield ("fusion lowers it without removing it", "counted",
           f"{of(effects['fusion_lowered'], effects['fusion_pairs'])} pairs; left is within the paper's 15 to 48 % in "
           f"{effects['fused_within']}, below in {effects['fused_below']}, above in {effects['fused_above']}")
    yield "operators sorted into groups", ">= 99 % of their time", f"at least {100 - unclassified(rows):.2f} %"
    for engine, values in covered.items():
        if values:
            yield (f"node times within 5 % of the wall, {engine}", "all",
                   f"{of(sum(value >= 95 for value in values), len(values))}; the least is {min(values):.0f} %")
    yield from (series.row() for series in agains)


def table(heading, rows):
    yield "| " + " | ".join(heading) + " |"
    yield "|" + "---|" * len(heading)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def model_rows(answer):
    rows = {key_of(row["setting"]): row for row in answer["rows"]}
    titles = {row["setting"]["model"]: row["title"] for row in answer["rows"]}
    for model, title in titles.items():
        cells = []
        for engine, quantize, fusion, _ in COLUMNS:
            row = rows.get((model, engine, 1, "fp32", quantize, fusion))
            star = "" if row is None or row["provenance"] == "measured" else " *"
            cells.append("-" if row is None else f"{row['nongemm_pct']:.1f} % / {row['seconds']:.3g} s{star}")
        yield [title, *cells]


def again_rows(series):
    for (model, engine, _, _, quantize, fusion), values in series.shares.items():
        yield [f"{model}, {engine}, {quantize if quantize != 'none' else 'fp32'}, fusion {fusion}",
               *[f"{value:.1f} %" for value in values], f"{max(values) - min(values):.1f}"]


def page(binary, folder):
    answer = answer_of(binary, folder / "results.jsonl")
    agains = all_series(binary, folder)
    machine, name = answer["machine"], folder.name
    yield "# How much of the paper's 17 models is no GEMM, on a CPU?"
    yield ""
    yield f"The newest records are in [{name}]({name}/README.md), which has the commands that made them, says of how many runs"
    yield f"they are, and explains each exception. This page is written by `python3 nongemm-cpu.py headroom {name} > nongemm-cpu.md`,"
    yield "of these records alone."
    yield ""
    yield (f"{machine['product']}, {machine['units']} threads, PyTorch {machine['torch']}, random weights, batch 1, load "
           f"{machine['load']:.1f} by the header of results.jsonl.")
    yield ""
    yield from table(["", "asked", "found"], summary(answer, agains))
    yield ""
    yield "Share of what is neither product nor attention, and seconds of a run (*: composed of one and two layers):"
    yield ""
    yield from table(["model", *[words for *_, words in COLUMNS]], model_rows(answer))
    for series in agains:
        yield ""
        yield f"Measured {series.runs} times on {series.threads} ({series.name}N.jsonl):"
        yield ""
        yield from table(["setting", *[f"run {run + 1}" for run in range(series.runs)], "apart"], again_rows(series))
    if answer["effects"]["exceptions"]:
        yield ""
        yield "Exceptions:"
        yield ""
        yield from (f"- {words}" for words in answer["effects"]["exceptions"])
    if answer["not_measured"]:
        yield ""
        yield "Not measured:"
        yield ""
        yield from (f"- {'/'.join(str(part) for part in key_of(one['setting']))}: {one['reason']}" for one in answer["not_measured"])


if __name__ == "__main__":
    print("\n".join(page(sys.argv[1], HERE / sys.argv[2])))
