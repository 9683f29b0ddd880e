#!/usr/bin/env python3
"""Seconds that exporting a model to ONNX takes, with the rewriter as it comes and as `bench nongemm` has it, and seconds of
quantizing it to int8: exports.py MODEL[:LAYERS] ... > exports.csv, from the repo's root, by its Python environment.

Of both ways the graphs are compared node by node, and the sizes of their weights.
"""

import contextlib
import csv
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "python"))

import onnx  # noqa: E402
import torch  # noqa: E402

from headroom import nongemm_models, nongemm_onnx, onnx_rewriting  # noqa: E402


def entry_of(name):
    entry = next(one for one in json.loads((ROOT / "data/nongemm_models.json").read_text())["models"] if one["name"] == name)
    if "builtin" in entry:
        known = json.loads((ROOT / "data/models.json").read_text())["models"]
        entry["config"] = next(one["config"] for one in known if one["id"] == entry["builtin"])
    return entry


def exported(entry, layers, way):
    before = onnx_rewriting.looking_at_operators_first
    onnx_rewriting.looking_at_operators_first = way
    try:
        start = time.perf_counter()
        graph = nongemm_onnx.Exported(torch, nongemm_models.Recipe(torch, entry), layers, 1, torch.float32)
        return graph, time.perf_counter() - start
    finally:
        onnx_rewriting.looking_at_operators_first = before


def content_of(graph):
    model = onnx.load(graph.paths["none"], load_external_data=False).graph
    return [node.SerializeToString() for node in model.node], [(one.name, list(one.dims)) for one in model.initializer]


def main():
    out = csv.writer(sys.stdout)
    out.writerow(["model", "layers", "nodes", "as_it_comes_s", "ours_s", "same_graph", "int8_s"])
    for word in sys.argv[1:]:
        name, _, layers = word.partition(":")
        entry, layers = entry_of(name), int(layers) if layers else None
        with torch.inference_mode():
            # What the first export of a process does once is in neither.
            exported(entry_of("bert"), None, contextlib.nullcontext)
            plain, plain_seconds = exported(entry, layers, contextlib.nullcontext)
            theirs = content_of(plain)
            del plain
            graph, seconds = exported(entry, layers, onnx_rewriting.looking_at_operators_first)
            start = time.perf_counter()
            graph.path("int8")
            quantizing = time.perf_counter() - start
        ours = content_of(graph)
        out.writerow([name, layers or "all", len(ours[0]), round(plain_seconds, 1), round(seconds, 1), ours == theirs,
                      round(quantizing, 1)])
        sys.stdout.flush()


if __name__ == "__main__":
    main()
