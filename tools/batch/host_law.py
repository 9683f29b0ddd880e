#!/usr/bin/env python3
"""What today's serving engines add to their kernels: host and sampling, from other people's servers.

    python3 tools/batch/host_law.py --binary build/dev/src/cli/headroom [--write data/timing.json] \\
        [--held-out FOLDER] ../shared/data/performance/aiconfigurator/silicon_sample.csv

    step = kernels + base + per_sequence * batch + per_logit * batch * vocabulary,  all three >= 0

Kernels (and the prompts read between steps) are what the program predicts with an engine that adds nothing; the time
per token is what silicon_rows.py reads. Least sum of log(1 + (error / 10 %)^2), each model of equal weight, so that
neither many rows nor servers that misbehave decide. A model is judged by what was fitted without it (DeepSeek's two are
one: the same architecture, partly the same measurements), and so are the half widths: of dense models and of mixtures
of experts, each that of 90 % of the held-out errors; how many of a model are inside is counted with the others' width.

What --write keeps is fitted on all, with the held-out errors. --held-out writes a file of timing laws for each model
that is left out, as silicon.py --held-out takes them. Needs numpy.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import silicon
import silicon_rows

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "timing"))
from document import dump  # noqa: E402

NAME = "serving-2026"
COEFFICIENTS = ("host_base_seconds", "host_seconds_per_sequence", "sampling_seconds_per_logit")
# The largest that are tried: of vLLM 0.6.3, times four.
MOST = np.array([4e-3, 1.3e-4, 1e-9])
SOURCE = ("AIConfigurator's silicon_sample.csv (commit 095f58a51), Apache-2.0: fitted on {rows} measurements of servers of"
          " 2025 and 2026 (TensorRT-LLM 1.0 to 1.2, vLLM, SGLang 0.5); errors of steps on models left out")


def engine(coefficients, median=0.0, widths=None, least=0.0, rows=0, devices=(), weights=()):
    law = {"name": NAME, **{name: float(f"{value:.4g}") for name, value in zip(COEFFICIENTS, coefficients)},
           "half_width_log": 0, "median_error_pct": round(float(median), 2)}
    if widths:
        law["step_half_width_log"] = {**{kind: round(float(width), 4) for kind, width in widths.items()},
                                      "devices": sorted(set(devices)), "weights": sorted(set(weights))}
        law["least_step_seconds"] = round(float(least), 6)
    return {**law, "source": SOURCE.format(rows=rows)}


def coefficients_of(name):
    """Of an engine that the program has."""
    shipped = json.loads((pathlib.Path(__file__).resolve().parents[2] / "data/timing.json").read_text())["engines"]
    law = next(law for law in shipped if law["name"] == name)
    return np.array([law[coefficient] for coefficient in COEFFICIENTS])


def law_file(law):
    return json.dumps({"schema": "headroom.timing/1", "engines": [law], "laws": []})


def curves_with(binary, law, settings, jobs):
    """[{batch: ms}] of each setting, under an engine; {} where it is not predicted."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(law_file(law))
        file.flush()
        environment = {**os.environ, "HEADROOM_TIMING": file.name}

        def ask(setting):
            curve, _ = silicon.ask(binary, silicon.flags(setting), environment)
            return {batch: itl["expected"] for batch, itl in (curve or {}).items()}

        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(ask, settings))


class Rows:
    """Of what is predicted: measured and predicted seconds, and what the coefficients are of."""

    def __init__(self, binary, path, jobs):
        grouped = silicon_rows.settings(silicon_rows.read(path)[0])
        settings = [dict(zip(silicon_rows.SETTING, key)) for key in grouped]
        one_gpu_each = [int(s["attention_dp_size"] or 1) == 1 for s in settings]
        settings = [s for s, is_one in zip(settings, one_gpu_each) if is_one]
        curves = curves_with(binary, engine(np.zeros(3)), settings, jobs)
        logits = self.vocabularies(binary, settings, curves)
        found = []
        for setting, curve in zip(settings, curves):
            for row in grouped[tuple(setting[name] for name in silicon_rows.SETTING)]:
                batch = int(row["batch_size"])
                if batch in curve:
                    model = row["model_path"]
                    found.append((silicon.FAMILY.get(model, model), float(row["silicon_tpot_ms"]) / 1e3, curve[batch] / 1e3,
                                  batch, batch * logits[model], silicon.is_dense(row),
                                  silicon.DEVICES[row["system"]], row["precision"] or "bf16"))
        self.model, self.measured, self.kernels, batch, of_logits, self.dense, self.device, self.weights = map(
            np.array, zip(*found))
        self.added = np.stack([np.ones(len(batch)), batch, of_logits], axis=1)
        self.models = sorted(set(self.model.tolist()))

    @staticmethod
    def vocabularies(binary, settings, curves):
        """{model: logits of a sequence}, as the program has them: by a nanosecond for each."""
        found = {}
        for setting, curve in zip(settings, curves):
            if curve and setting["model_path"] not in found:
                (more,) = curves_with(binary, engine([0, 0, 1e-9]), [setting], 1)
                found[setting["model_path"]] = round((more[1] - curve[1]) / 1e3 / 1e-9)
        return found

    def errors(self, coefficients):
        return np.log((self.kernels + self.added @ coefficients) / self.measured)


def least(loss, most):
    """Where it is least on [0, most], by golden sections."""
    low, high, part = 0.0, most, (5**0.5 - 1) / 2
    for _ in range(40):
        a, b = high - part * (high - low), low + part * (high - low)
        low, high = (low, b) if loss(a) <= loss(b) else (a, high)
    return 0.0 if loss(0.0) <= loss(low) else low


def fit(rows, chosen):
    weight = np.zeros(len(rows.model))
    for model in rows.models:
        of_it = chosen & (rows.model == model)
        weight[of_it] = 1 / max(1, of_it.sum())
    found = np.zeros(3)

    def loss(place, value):
        tried = found.copy()
        tried[place] = value
        return float(weight @ np.log1p((rows.errors(tried) / 0.1) ** 2))

    for _ in range(20):
        for place in range(3):
            found[place] = least(lambda value, place=place: loss(place, value), MOST[place])
    return found


def width(errors):
    return float(np.quantile(np.abs(errors), 0.9))


def kinds(rows):
    return {"dense": rows.dense, "experts": ~rows.dense}


def widths_of(rows, errors, chosen):
    every = width(errors[chosen])
    return {kind: width(errors[chosen & of_it]) if (chosen & of_it).any() else every
            for kind, of_it in kinds(rows).items()}


def held_out(rows):
    """Errors of each model by what the others say, and {model: that law}."""
    errors, laws = np.zeros(len(rows.model)), {}
    for model in rows.models:
        mine = rows.model == model
        laws[model] = fit(rows, ~mine)
        errors[mine] = rows.errors(laws[model])[mine]
    return errors, laws


def error_of(errors):
    return np.abs(np.expm1(errors)) * 100


def show(name, errors, former, inside):
    new, old = error_of(errors), error_of(former)
    print(f"{name:36} {len(new):5} {np.median(old):8.1f} {np.median(new):8.1f} {np.quantile(new, 0.9):8.1f}"
          f" {100 * np.median(np.expm1(errors)):+8.1f} {100 * np.mean(inside):8.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("--held-out", type=pathlib.Path)
    parser.add_argument("file")
    words = parser.parse_args()
    rows = Rows(words.binary, words.file, words.jobs)
    errors, laws = held_out(rows)
    former = rows.errors(coefficients_of("vllm-0.6.3"))
    inside = np.zeros(len(errors), bool)
    folds = {}
    for model in rows.models:
        mine = rows.model == model
        # Not its own errors: those of the others, each of which was left out itself.
        others = widths_of(rows, errors, ~mine)
        folds[model] = engine(laws[model], np.median(error_of(errors[~mine])), others,
                              rows.measured[~mine].min(), int((~mine).sum()), rows.device[~mine].tolist(),
                              rows.weights[~mine].tolist())
        half = np.where(rows.dense, others["dense"], others["experts"])
        inside[mine] = (np.abs(errors) <= half)[mine]
    print(f"{'left out':36} {'rows':>5} {'0.6.3 %':>8} {'new %':>8} {'p90 %':>8} {'median':>8} {'inside %':>8}")
    for model in rows.models:
        of_it = rows.model == model
        show(model, errors[of_it], former[of_it], inside[of_it])
        print("    without it:", " ".join(f"{value:.3g}" for value in laws[model]))
    for kind, of_it in kinds(rows).items():
        show(kind, errors[of_it], former[of_it], inside[of_it])
    everything = np.ones(len(errors), bool)
    law = engine(fit(rows, everything), np.median(error_of(errors)), widths_of(rows, errors, everything),
                 rows.measured.min(), len(errors), rows.device.tolist(), rows.weights.tolist())
    print(json.dumps(law))
    if words.held_out:
        words.held_out.mkdir(parents=True, exist_ok=True)
        for model, fold in folds.items():
            (words.held_out / f"{model.replace('/', '+')}.json").write_text(law_file(fold))
    if words.write:
        document = json.loads(words.write.read_text())
        document["engines"] = [e for e in document["engines"] if e["name"] != NAME] + [law]
        words.write.write_text(dump(document))


if __name__ == "__main__":
    main()
