"""Step times that others published, held against what `headroom fit` predicts.

    python3 judge.py --headroom build/dev/src/cli/headroom --data ../shared/data

runs.csv beside this file has the runs: `id` is a row of peak_memory/measured.csv under --data, which
says the setting; rows without an id say it themselves, as a model and flags of `fit`. `part`:
"learned" and "width" rows taught data/timing.json its "steps" (tools/timing/step.py), the others
did not.
"""

import argparse
import csv
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def parser(words):
    arguments = argparse.ArgumentParser(description=words, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--headroom", default="headroom", help="the program")
    arguments.add_argument("--data", type=pathlib.Path, required=True, help="holds peak_memory/measured.csv")
    return arguments


def ask(arguments, words, environment):
    made = subprocess.run([arguments.headroom, "fit", *words, "--json"], capture_output=True, text=True,
                          env={**os.environ, **environment}, check=False)
    if made.returncode not in (0, 1):
        raise SystemExit(f"headroom fit {' '.join(words)}: {made.stderr}")
    return json.loads(made.stdout)


def rows_of_settings(arguments, runs, environment):
    """Runs whose setting stands in measured.csv, by fit --against."""
    by_id = {r["id"]: r for r in runs if r["id"]}
    with (arguments.data / "peak_memory/measured.csv").open() as file:
        table = [dict(r, step_seconds=by_id[r["id"]]["step_seconds"]) for r in csv.DictReader(file)
                 if r["id"] in by_id]
    with tempfile.NamedTemporaryFile("w", suffix=".csv", newline="") as file:
        writer = csv.DictWriter(file, table[0].keys())
        writer.writeheader()
        writer.writerows(table)
        file.flush()
        answer = ask(arguments, ["--against", file.name], environment)
    for row in answer["rows"]:
        if row["metric"] == "step_seconds":
            setting = next(r for r in table if r["id"] == row["id"])
            yield by_id[row["id"]], row["model"], int(setting["n_gpus"] or 1), row["predicted_seconds"], row["reason"]


def rows_of_flags(arguments, runs, environment):
    for run in runs:
        if run["id"]:
            continue
        words = [run["model"], *run["flags"].split(), "--search", "false"]
        answer = ask(arguments, words, environment)
        time = answer.get("time")
        predicted = time and {"low": time["step_seconds_low"], "expected": time["step_seconds"],
                              "high": time["step_seconds_high"]}
        yield run, run["model"], answer["device"]["count"], predicted, "; ".join(answer["notes"])


def predicted_rows(arguments, environment):
    with (HERE / "runs.csv").open() as file:
        runs = list(csv.DictReader(file))
    rows = []
    for run, model, gpus, predicted, reason in (*rows_of_settings(arguments, runs, environment),
                                                *rows_of_flags(arguments, runs, environment)):
        if not predicted:
            print(f"unsupported: {run['source']} {run['id']} {model}: {reason}")
            continue
        rows.append({"part": run["part"], "source": run["source"], "id": run["id"], "model": model,
                     "gpus": gpus, "about": run["about"], "measured": float(run["step_seconds"]),
                     "predicted": predicted["expected"], "low": predicted["low"], "high": predicted["high"]})
    return rows


def error(row):
    return 100 * (row["predicted"] / row["measured"] - 1)


def line(name, rows):
    sizes = sorted(abs(error(r)) for r in rows)
    inside = sum(r["low"] <= r["measured"] <= r["high"] for r in rows)
    width = statistics.median(100 * (r["high"] - r["low"]) / r["predicted"] for r in rows)
    return (f"| {name} | {len(rows)} | {statistics.median(sizes):.1f} | {sizes[int(0.9 * (len(sizes) - 1))]:.1f} | "
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
            writer = csv.DictWriter(file, [*rows[0].keys(), "error_pct"])
            writer.writeheader()
            for row in rows:
                writer.writerow({**row, "predicted": f"{row['predicted']:.4f}", "low": f"{row['low']:.4f}",
                                 "high": f"{row['high']:.4f}", "error_pct": f"{error(row):.1f}"})


if __name__ == "__main__":
    main()
