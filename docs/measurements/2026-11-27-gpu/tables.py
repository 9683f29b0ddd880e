"""The tables of README.md, from the files beside it and what `headroom` says of them.

    python3 tables.py HEADROOM > tables.md
"""

import csv
import io
import json
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
GIB = 2**30


def rows_of(name):
    return json.loads((HERE / name).read_text())


def lines_of(name):
    return [json.loads(line) for line in (HERE / name).read_text().splitlines()[1:]]


def table(head, rows):
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print()


def allocators():
    by_training = {}
    for row in rows_of("allocator.json"):
        by_training.setdefault((row["model"], row["pattern"]), {})[row["allocator"]] = row
    made = []
    for (model, pattern), rows in by_training.items():
        cells = []
        for allocator in ("default", "expandable", "headroom"):
            row = rows.get(allocator)
            cells.append(f"{row['peak_reserved_bytes'] / GIB:.3f} ({100 * row['peak_allocated_bytes'] / row['peak_reserved_bytes']:.2f} %)"
                         if row else "")
        ours = rows["headroom"]["headroom_run"]
        served = f"{100 * ours['planned'] / ours['requests']:.2f} % planned" if ours["requests"] else "no plan"
        same = "yes" if len({tuple(row["losses"]) for row in rows.values()}) == 1 else "NO"
        made.append((model, pattern, *cells, f"{rows['headroom']['warm_up_reserved_bytes'] / GIB:.3f}", served, same))
    print("## Reserved, GiB, from the fifteenth iteration on, and how much of it was allocated\n")
    table(("model", "training", "PyTorch", "expandable segments", "Headroom", "its first fourteen", "requests since the switch", "losses the same to the bit"), made)


def times():
    made = []
    for row in rows_of("times.json"):
        late = sorted(row["all_step_ms"][14:])
        if late:
            made.append((row["model"], row["allocator"], f"{statistics.median(late):.2f}", f"{late[0]:.2f}", f"{late[-1]:.2f}"))
    print("## Step, milliseconds, alone, from the fifteenth on\n")
    table(("model", "allocator", "median", "least", "most"), made)


def fit(headroom, name, relabel):
    text = (HERE / name).read_text()
    if relabel:
        text = text.replace(",Adafactor,", ",transformers Adafactor,")
    place = HERE / f".{name}"
    place.write_text(text)
    try:
        done = subprocess.run([headroom, "fit", "--against", place.name, "--json"], cwd=HERE, capture_output=True, text=True, check=True)
    finally:
        place.unlink()
    by_id = {row["id"]: row for row in csv.DictReader(io.StringIO(text))}
    return [(row, by_id[row["id"]]) for row in json.loads(done.stdout)["rows"]]


def nearest(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def fits(headroom):
    made = []
    for name, relabel, what in (
            ("train-look.csv", True, "one GPU, families looked at"), ("train-aside.csv", True, "one GPU, families held aside"),
            ("train-look.csv", False, "the same as labelled when run, looked at"),
            ("train-aside.csv", False, "the same as labelled when run, aside"),
            ("ranks-look.csv", False, "rank 0 of 2 to 16, looked at"), ("ranks-aside.csv", False, "rank 0 of 2 to 16, aside"),
            ("alone-look.csv", True, "alone on the device, looked at"), ("alone-aside.csv", True, "alone on the device, aside")):
        errors = {}
        for row, run in fit(headroom, name, relabel):
            kinds = [row["metric"]]
            if name.startswith("ranks"):
                kinds.append(f"{row['metric']}, {run['parallelism'].split()[0]}")
            for kind in kinds:
                errors.setdefault(kind, []).append(abs(row["error_pct"]))
        for kind, values in sorted(errors.items()):
            made.append((what, kind, len(values), f"{statistics.median(values):.2f}", f"{nearest(values, 0.9):.2f}", f"{max(values):.2f}"))
    print("## `headroom fit --against`: error, percent\n")
    table(("rows", "metric", "rows", "median", "p90", "worst"), made)


def graphs(headroom):
    by_model = {}
    for record in lines_of("nongemm.jsonl"):
        if record["status"] == "measured" and record["layers"] is None:
            by_model.setdefault(record["setting"]["model"], {})[record["setting"]["engine"]] = record
    made, quotients = [], []
    for model, records in by_model.items():
        if len(records) < 2:
            continue
        eager, graphed = records["pytorch"]["seconds"], records["graphed"]["seconds"]
        changes = asked(headroom, "ops", f"traces/{model}.trace.json.gz")["horizon"]
        told = next(change for change in changes if change["change"] == "cuda_graph")
        quotients.append(told["speedup"] / (eager / graphed))
        made.append((model, f"{1e3 * eager:.2f}", f"{1e3 * graphed:.2f}", f"{eager / graphed:.2f}",
                     f"{told['speedup']:.2f} ({told['speedup_low']:.2f} to {told['speedup_high']:.2f})"))
    print("## Launches in a graph: what the eager trace's replay says, and what it was\n")
    table(("model", "eager, ms", "in a graph, ms", "times as fast", "replayed"), made)
    print(f"Replayed over measured: median {statistics.median(quotients):.2f}, {min(quotients):.2f} to {max(quotients):.2f}.\n")


def asked(headroom, *words):
    return json.loads(subprocess.run([headroom, *words, "--json"], cwd=HERE, capture_output=True, text=True, check=True).stdout)


def steps(headroom):
    measured = {(row["model"], row["allocator"]): row for row in rows_of("times.json")}
    made = []
    for model in ("gpt2", "llama"):
        told = []
        for more in ((), ("--calibration", "h200.calibration.json")):
            answer = asked(headroom, "fit", f"configs/allocator-{model}.json", "--device", "h200-sxm-141gb", "--batch", "4", "--seq", "1024",
                           "--attention", "eager", "--dtype", "bf16", "--optimizer", "adamw", *more)["time"]
            told.append(f"{1e3 * answer['step_seconds']:.1f} ({1e3 * answer['step_seconds_low']:.0f} to {1e3 * answer['step_seconds_high']:.0f})")
        made.append((model, *(f"{statistics.median(measured[model, one]['all_step_ms'][14:]):.1f}" for one in ("default", "headroom")), *told))
    print("## A training step, milliseconds: measured, and what `fit` says\n")
    table(("model", "PyTorch's allocator", "Headroom", "from the datasheet", "with h200.calibration.json"), made)


def decode(headroom):
    made = []
    told = []
    for more in ((), ("--calibration", "h200.calibration.json")):
        answer = asked(headroom, "bench", "decode", "facebook/opt-1.3b", "--device", "h200-sxm-141gb", "--predict", "--context", "512",
                       "--batches", "1,4,16,64", *more)
        told.append({row["batch"]: row["step_ms"] for row in answer["steps"]})
    for record in lines_of("decode.jsonl"):
        batch = record["setting"]["batch"]
        kernels = sum(group["ms"] for group in record["profile"]["groups"])
        made.append((batch, f"{1e3 * record['seconds']:.2f}", f"{kernels:.2f}",
                     *(f"{one[batch]['expected']:.2f} ({one[batch]['low']:.2f} to {one[batch]['high']:.2f})" for one in told)))
    print("## OPT-1.3B, a decode step with 512 tokens in the cache, milliseconds\n")
    table(("batch", "step", "kernels alone", "predicted, laws of servers", "with h200.calibration.json"), made)


def lengths():
    by_length = {}
    for record in lines_of("lengths.jsonl"):
        by_length.setdefault(record["setting"]["model"].rpartition("_")[2], {})[record["setting"]["quantize"]] = record
    made = []
    for length, records in by_length.items():
        cells = []
        for quantize in ("none", "int8"):
            groups = {group["name"]: group["ms"] for group in records[quantize]["profile"]["groups"]}
            share = 100 * (1 - (groups["gemm"] + groups["attention"]) / sum(groups.values()))
            cells += [f"{1e3 * records[quantize]['seconds']:.2f}", f"{share:.1f}"]
        made.append((length, *cells, f"{records['none']['seconds'] / records['int8']['seconds']:.2f}"))
    print("## LLM.int8() of plain operators: Llama-3.1-8B's shapes, four layers and the head, fp16\n")
    table(("tokens", "fp16, ms", "non-GEMM, %", "int8, ms", "non-GEMM, %", "times as quick"), made)


def main():
    headroom = sys.argv[1]
    allocators()
    times()
    steps(headroom)
    fits(headroom)
    graphs(headroom)
    decode(headroom)
    lengths()


if __name__ == "__main__":
    main()
