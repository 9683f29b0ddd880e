"""Step times that others published, held against what `headroom fit` predicts.

    python3 judge.py --headroom build/dev/src/cli/headroom --data ../shared/data --refs FOLDER

FOLDER is scripts/benchmarks/refs of foundation-model-stack/fms-acceleration at commit 876e2ed: its
CSV files have the time of 100 steps, and peak_memory/measured.csv under --data the setting of the
runs whose peak is the same. runs.csv beside this file has the runs of others, as flags of `fit`.

Of fms-acceleration, Mistral-7B ("learned") and santacoder ("width") taught data/timing.json its
"steps" (tools/timing/step.py); nothing else did.
"""

import argparse
import csv
import json
import math
import os
import pathlib
import statistics
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 100  # that fms-acceleration timed together, what comes before the first included


def parser(words):
    arguments = argparse.ArgumentParser(description=words, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--headroom", default="headroom", help="the program")
    arguments.add_argument("--data", type=pathlib.Path, required=True, help="holds peak_memory/measured.csv")
    arguments.add_argument("--refs", type=pathlib.Path, required=True, help="fms-acceleration's results")
    return arguments


def part_of(model):
    return "learned" if "Mistral-7B" in model else "width" if "santacoder" in model else "aside"


def fms_runs(arguments):
    """(row of measured.csv, seconds a step) of the runs that are in both, by what they share."""
    with (arguments.data / "peak_memory/measured.csv").open() as file:
        settings = [r for r in csv.DictReader(file) if r["source"] == "fms-acceleration"]
    for name in ("a100_80gb.csv", "a100_80gb_liger.csv"):
        with (arguments.refs / name).open() as file:
            for run in csv.DictReader(file):
                if not run["train_runtime"] or not run["mem_peak_torch_mem_alloc_in_bytes"]:
                    continue
                same = [r for r in settings if r["url"].endswith("/" + name)
                        and r["value_bytes"] == str(int(float(run["mem_peak_torch_mem_alloc_in_bytes"])))
                        and r["framework"].endswith("framework_config=" + run["framework_config"])
                        and r["n_gpus"] == run["num_gpus"]
                        and r["micro_batch"] == run["per_device_train_batch_size"]]
                if len(same) == 1:
                    yield same[0], float(run["train_runtime"]) / STEPS


def ask(arguments, words, environment):
    made = subprocess.run([arguments.headroom, "fit", *words, "--json"], capture_output=True, text=True,
                          env={**os.environ, **environment}, check=False)
    if made.returncode not in (0, 1):
        raise SystemExit(f"headroom fit {' '.join(words)}: {made.stderr}")
    return json.loads(made.stdout)


def rows_of_settings(arguments, environment, parts):
    """Runs whose setting stands in measured.csv, by fit --against."""
    runs = [run for run in fms_runs(arguments) if part_of(run[0]["model"]) in parts]
    table = [dict(setting, step_seconds=seconds) for setting, seconds in runs]
    with tempfile.NamedTemporaryFile("w", suffix=".csv", newline="") as file:
        writer = csv.DictWriter(file, table[0].keys())
        writer.writeheader()
        writer.writerows(table)
        file.flush()
        answer = ask(arguments, ["--against", file.name], environment)
    times = {r["id"]: r for r in answer["rows"] if r["metric"] == "step_seconds"}
    for setting, seconds in runs:
        yield {"part": part_of(setting["model"]), "source": setting["source"], "id": setting["id"],
               "model": setting["model"], "gpus": int(setting["n_gpus"]),
               "about": setting["framework"].split("=")[-1], "measured": seconds,
               "time": times[setting["id"]]["predicted_seconds"], "reason": times[setting["id"]]["reason"]}


def rows_of_flags(arguments, environment):
    with (HERE / "runs.csv").open() as file:
        for run in csv.DictReader(file):
            answer = ask(arguments, [run["model"], *run["flags"].split(), "--search", "false"], environment)
            time = answer.get("time")
            yield {"part": "aside", "source": run["source"], "id": "", "model": run["model"],
                   "gpus": answer["device"]["count"], "about": run["about"], "measured": float(run["step_seconds"]),
                   "time": time and {"low": time["step_seconds_low"], "expected": time["step_seconds"],
                                     "high": time["step_seconds_high"]}, "reason": "; ".join(answer["notes"])}


def predicted_rows(arguments, environment, parts=("learned", "width", "aside")):
    rows = []
    flagged = rows_of_flags(arguments, environment) if "aside" in parts else ()
    for row in (*rows_of_settings(arguments, environment, parts), *flagged):
        time, reason = row.pop("time"), row.pop("reason")
        if not time:
            print(f"unsupported: {row['source']} {row['id']} {row['model']}: {reason}")
            continue
        rows.append({**row, "predicted": time["expected"], "low": time["low"], "high": time["high"]})
    return rows


def error(row):
    return 100 * (row["predicted"] / row["measured"] - 1)


def line(name, rows):
    sizes = sorted(abs(error(r)) for r in rows)
    inside = sum(r["low"] <= r["measured"] <= r["high"] for r in rows)
    width = statistics.median(100 * (r["high"] - r["low"]) / r["predicted"] for r in rows)
    return (f"| {name} | {len(rows)} | {statistics.median(sizes):.1f} | {sizes[math.ceil(0.9 * len(sizes)) - 1]:.1f} | "
            f"{sizes[-1]:.1f} | {statistics.median(error(r) for r in rows):+.1f} | {inside} of {len(rows)} | {width:.0f} |")


def main():
    arguments = parser(__doc__)
    arguments.add_argument("--output", type=pathlib.Path, help="writes every row to this CSV file")
    arguments = arguments.parse_args()
    rows = predicted_rows(arguments, {})
    print("| runs | rows | median error % | p90 | worst | median, signed | in the interval | interval's width % |")
    print("|---|---|---|---|---|---|---|---|")
    aside = [r for r in rows if r["part"] == "aside"]
    print(line("learned from: Mistral-7B of fms-acceleration", [r for r in rows if r["part"] == "learned"]))
    print(line("interval from: santacoder of fms-acceleration", [r for r in rows if r["part"] == "width"]))
    for source in sorted({r["source"] for r in aside}):
        mine = [r for r in aside if r["source"] == source]
        print(line(f"kept aside: {source}", mine))
        for model in sorted({r["model"] for r in mine}) if len(mine) > 5 else ():
            for gpus in sorted({r["gpus"] for r in mine if r["model"] == model}):
                print(line(f"&nbsp; {model}, {gpus} GPU", [r for r in mine if r["model"] == model and r["gpus"] == gpus]))
    print(line("kept aside, all", aside))
    if arguments.output:
        with arguments.output.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["part", "source", "id", "model", "gpus", "about", "predicted_seconds", "low_seconds",
                             "high_seconds", "error_pct", "in_interval"])
            for r in rows:
                writer.writerow([r["part"], r["source"], r["id"], r["model"], r["gpus"], r["about"],
                                 f"{r['predicted']:.3g}", f"{r['low']:.3g}", f"{r['high']:.3g}", f"{error(r):.1f}",
                                 r["low"] <= r["measured"] <= r["high"]])


if __name__ == "__main__":
    main()
