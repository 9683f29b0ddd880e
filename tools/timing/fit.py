"""Fits the laws to the published tables and writes data/timing.json.

    HEADROOM_DATA=... python3 tools/timing/fit.py [--output data/timing.json]

Only coefficients enter the file: no row of a table does. The same tables give the same file. Needs
numpy; about two minutes on one core.
"""

import argparse
import json
import os
import pathlib

import numpy as np

import classes
import engine
from document import dump
import evaluate
import law
import tables

SOURCES = {
    "neusight": "NeuSight (sitar-lab/NeuSight, scripts/asplos), MIT: FP32 operators, PyTorch 2.1, CUDA 12.1",
    "aiconfigurator": "AIConfigurator (ai-dynamo/aiconfigurator, commit 095f58a51), Apache-2.0: kernels under"
    " vLLM 0.14.0 (A100) and 0.24.0 (H100, L40S), bf16; its all-reduce",
    "vidur": "Vidur (microsoft/vidur, commit 7d47513), MIT: a layer of Llama-2-7B, fp16; NCCL all-reduce in a DGX",
    "infersim": "InferSim (alibaba/InferSim, commit f2293da), Apache-2.0: FP8 GEMM and bf16 decode attention",
}


def table_json(term, values):
    return {
        "features": list(term.features),
        "knots": [[float(x) for x in knots] for knots in term.knots],
        "values": [round(float(v), 4) for v in values],
    }


def law_json(fitted, data, residuals, new_device):
    """A law with its held-out errors: medians in percent, half widths as logarithms."""
    known = ~np.isnan(residuals)
    widths = evaluate.half_widths(residuals[known], data.device[known], data.large[known], new_device)
    errors = {}
    for name, size in (("large", True), ("small", False)):
        rows = known & (data.large == size)
        error = 100 * np.median(np.abs(np.exp(-residuals[rows]) - 1)) if rows.any() else None
        errors[name] = {
            "rows": int(rows.sum()),
            "median_error_pct": None if error is None else round(float(error), 2),
            "half_width_log": round(widths[size], 4),
        }
    return {
        "start_seconds": fitted.start_seconds,
        "intercept": round(float(fitted.intercept), 4),
        "errors": errors,
        "tables": [table_json(t, v) for t, v in zip(fitted.terms, fitted.values)],
    }


def correction_json(data, residuals, names):
    """How points of a device correct the law, and the errors that are left (evaluate.with_points)."""
    kriging = law.Kriging.over(names, data)
    corrected = evaluate.with_points(data, residuals, names)
    known = ~np.isnan(corrected)
    widths = evaluate.half_widths(corrected[known], data.device[known], data.large[known], True)
    return {
        "features": list(names),
        "center": [round(float(x), 4) for x in kriging.center],
        "scale": [round(float(x), 4) for x in kriging.scale],
        "offset_sd": kriging.offset_sd,
        "local_sd": kriging.local_sd,
        "noise_sd": kriging.noise_sd,
        "half_width_log": {"large": round(widths[True], 4), "small": round(widths[False], 4)},
    }


def rates_json(samples):
    """The arithmetic that the law has seen, so that it is not believed of any other; nothing where
    the operators only move memory."""
    rates = sorted({s.rate for s in samples if s.flops})
    return {"rates": rates} if rates else {}


def general_law(cls, samples, devices):
    """The law for devices never seen: fitted on all, its errors from leaving each out."""
    data = law.problem(cls.kind, classes.samples_of(cls, samples), devices, classes.ROWS_MOST)
    design = classes.design(cls.tables, data, classes.RIDGE, classes.SMOOTH)
    fitted = law.fit(design, data, np.arange(len(data)))
    residuals, _, _ = evaluate.unseen(data, design)
    found = {
        "class": cls.name,
        "devices": sorted(set(data.device.tolist())),
        "sources": sorted(set(data.source.tolist())),
        **rates_json(classes.samples_of(cls, samples)),
        **law_json(fitted, data, residuals, True),
    }
    corrected = evaluate.with_points(data, residuals, cls.correction)
    if len(set(data.device[~np.isnan(corrected)])) >= 2:
        found["correction"] = correction_json(data, residuals, cls.correction)
    return found


def device_laws(cls, samples, devices, general):
    """Laws of devices with tables of their own: of the source that has most rows of the device. One
    that does worse on held-out shapes than the general law does on unseen devices is left out."""
    chosen = classes.samples_of(cls, samples)
    for device in sorted({s.device for s in chosen}):
        mine = [s for s in chosen if s.device == device]
        counts = {source: sum(s.source == source for s in mine) for source in cls.sources}
        source = max(counts, key=counts.get)
        if counts[source] < evaluate.FEWEST_ROWS:
            continue
        part = [s for s in mine if s.source == source]
        data = law.problem(cls.kind, part, devices, classes.DEVICE_ROWS_MOST)
        design = classes.design(cls.device_tables, data, classes.DEVICE_RIDGE, classes.DEVICE_SMOOTH)
        fitted = law.fit(design, data, np.arange(len(data)))
        residuals, _, _ = evaluate.with_tables(data, cls.device_tables)
        found = {
            "class": cls.name,
            "device": device,
            "sources": [source],
            **rates_json(part),
            **law_json(fitted, data, residuals, False),
        }
        if not is_worse(found, general):
            yield found


def is_worse(own, general):
    """Whether large operands (small ones, where either law knows no large ones) are timed worse."""
    for size in ("large", "small"):
        a, b = (law["errors"][size]["median_error_pct"] for law in (own, general))
        if a is not None and b is not None:
            return a > b
    return False


def kept(path, member):
    """What is learned from predictions, which need the laws: what is there stays."""
    return json.loads(path.read_text()).get(member, []) if path.exists() else []


def main():
    repository = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=repository / "data/timing.json")
    arguments = parser.parse_args()
    devices = tables.devices(repository)
    samples = tables.load(os.environ["HEADROOM_DATA"])
    laws = []
    for cls in classes.CLASSES:
        general = general_law(cls, samples, devices)
        laws += [general, *device_laws(cls, samples, devices, general)]
    about = "Fitted by tools/timing/fit.py; docs/formats/timing.md explains every member."
    own = engine.fit(pathlib.Path(os.environ["HEADROOM_DATA"]))
    # tools/batch/host_law.py writes the others, tools/timing/step.py the steps.
    engines = [own] + [other for other in kept(arguments.output, "engines") if other["name"] != own["name"]]
    document = {
        "schema": "headroom.timing/1",
        "about": about,
        "sources": SOURCES,
        "engines": engines,
        "steps": kept(arguments.output, "steps"),
        "laws": laws,
    }
    arguments.output.write_text(dump(document))


if __name__ == "__main__":
    main()
