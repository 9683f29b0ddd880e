#!/usr/bin/env python3
"""Holds what `headroom ops` says of a run alone against changes that were really made, on a CPU: graphs and modules fused
and not fused, in float32 and in dynamic int8, by ONNX Runtime and by PyTorch.

    pairs.py record --engine ort|torch --stacks former|new --keep FOLDER [--runs 60] [--rounds 8]
    pairs.py judge --engine ort|torch --keep FOLDER --binary PATH [--calibration FILE]

`record` profiles stacks of transformer layers before and after a change, in turns, on one thread, as the scripts of
2026-11-22-ops-pairs-ort and 2026-11-23-ops-pairs-torch do (whose stacks are the former ones), and keeps the fastest run of
either side. `judge` asks the horizon about the run before: "fuse_elementwise" for ORT_ENABLE_BASIC against
ORT_ENABLE_EXTENDED and for eager against torch.compile, "gemm_int8_fused" by --calibration for quantize_dynamic. Nothing
else goes in. Prints a line a pair: times, what was measured and said, the error, and whether it is in the interval.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import warnings
from pathlib import Path

MEASUREMENTS = Path(__file__).resolve().parent.parent
NEW = {  # layers, width, heads, tokens
    "deep": (6, 320, 5, 96),
    "tall": (2, 768, 12, 256),
    "gated": (3, 512, 8, 192),  # as Llama's: RMSNorm, no biases, a gate
}
GATED_WIDTH = 1408
CHANGES = {"ort": ("fused", "int8"), "torch": ("compiled", "int8")}
LINES = {"fused": "fuse_elementwise", "compiled": "fuse_elementwise", "int8": "gemm_int8_fused"}


def module_at(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # torch.compile looks there
    spec.loader.exec_module(module)
    return module


def gated_graph(record):
    """A graph of Llama's layers, every operator of its own."""
    import numpy

    class Gated(record.Graph):
        def norm(self, x, width):
            mean = self.add("ReduceMean", self.add("Pow", x, self.number(2)), axes=[-1])
            root = self.add("Sqrt", self.add("Add", mean, self.number(1e-5)))
            return self.add("Mul", self.add("Div", x, root), self.constant(numpy.ones(width, numpy.float32)))

        def linear(self, x, width, out):
            return self.add("MatMul", x, self.weight(width, out))

        def gelu(self, x):  # where a former layer has it: its input is that of the gate
            gate = self.linear(self.gated, self.width, GATED_WIDTH)
            return self.add("Mul", self.add("Mul", gate, self.add("Sigmoid", gate)), x)

        def layer(self, x, width, heads, tokens):
            self.width = width
            sizes = self.constant(numpy.array([1, tokens, heads, width // heads], numpy.int64))
            joined = self.constant(numpy.array([1, tokens, width], numpy.int64))
            normed, parts = self.norm(x, width), {}
            for part, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
                split = self.add("Reshape", self.linear(normed, width, width), sizes)
                parts[part] = self.add("Transpose", split, perm=order)
            scores = self.add("Div", self.add("MatMul", parts["q"], parts["k"]), self.number((width // heads) ** 0.5))
            mixed = self.add("MatMul", self.add("Softmax", scores, axis=-1), parts["v"])
            flat = self.add("Reshape", self.add("Transpose", mixed, perm=[0, 2, 1, 3]), joined)
            x = self.add("Add", x, self.linear(flat, width, width))
            self.gated = self.norm(x, width)
            up = self.gelu(self.linear(self.gated, width, GATED_WIDTH))
            return self.add("Add", x, self.linear(up, GATED_WIDTH, width))

    return Gated


def record_ort(words):
    import onnxruntime
    from onnxruntime.quantization import QuantType, quantize_dynamic
    record = module_at(MEASUREMENTS / "2026-11-22-ops-pairs-ort/record.py", "record_ort")
    level, plain_graph = onnxruntime.GraphOptimizationLevel, record.Graph
    for name, sizes in stacks(words, record.GRAPHS).items():
        record.Graph = gated_graph(record) if name == "gated" else plain_graph
        plain, quantized = words.keep / f"{name}.onnx", words.keep / f"{name}_int8.onnx"
        x = record.write(plain, *sizes)
        quantize_dynamic(str(plain), str(quantized), weight_type=QuantType.QInt8)
        basic, extended, int8 = (lambda path=path, way=way: record.session(path, way, words.keep)
                                 for path, way in ((plain, level.ORT_ENABLE_BASIC), (plain, level.ORT_ENABLE_EXTENDED),
                                                   (quantized, level.ORT_ENABLE_EXTENDED)))
        record.record_pair(basic(), extended(), x, words.runs, words.keep, f"{name}_fused")
        record.record_pair(extended(), int8(), x, words.runs, words.keep, f"{name}_int8")
        for path in (plain, quantized):
            path.unlink()


def record_torch(words):
    import torch
    record = module_at(MEASUREMENTS / "2026-11-23-ops-pairs-torch/record.py", "record_torch")

    class Gated(record.Layer):
        def __init__(self, width, heads):
            torch.nn.Module.__init__(self)
            self.heads = heads
            self.before, self.behind = torch.nn.RMSNorm(width), torch.nn.RMSNorm(width)
            self.query, self.key, self.value, self.out = (torch.nn.Linear(width, width, bias=False) for _ in range(4))
            self.gate, self.up = (torch.nn.Linear(width, GATED_WIDTH, bias=False) for _ in range(2))
            self.down = torch.nn.Linear(GATED_WIDTH, width, bias=False)

        def forward(self, x):
            normed = self.before(x)
            query, key, value = (self.split(one(normed)) for one in (self.query, self.key, self.value))
            scores = query @ key.transpose(2, 3) / (x.shape[-1] / self.heads) ** 0.5
            mixed = (torch.softmax(scores, -1) @ value).transpose(1, 2).flatten(2)
            x = x + self.out(mixed)
            normed = self.behind(x)
            return x + self.down(torch.nn.functional.silu(self.gate(normed)) * self.up(normed))

    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch._inductor.config.cpp.enable_kernel_profile = True
    with torch.no_grad():
        for name, (layers, width, heads, tokens) in stacks(words, record.STACKS).items():
            layer = Gated if name == "gated" else record.Layer
            plain = torch.nn.Sequential(*(layer(width, heads) for _ in range(layers))).eval()
            quantized = torch.ao.quantization.quantize_dynamic(plain, {torch.nn.Linear}, dtype=torch.qint8)
            x = torch.rand(1, tokens, width)
            for change, after in (("compiled", torch.compile(plain)), ("int8", quantized)):
                record.record_pair(plain, after, x, words.rounds, words.keep, f"{name}_{change}")


def stacks(words, former):
    return former if words.stacks == "former" else NEW


def asked(binary, path, *flags):
    return json.loads(subprocess.run([binary, "ops", str(path), "--json", *flags], capture_output=True, text=True,
                                     check=True).stdout)


def judge(words):
    print("change,stack,before_ms,after_ms,measured,said,low,high,error_pct,in_interval")
    for change in CHANGES[words.engine]:
        for before in sorted(words.keep.glob(f"*_{change}_before.json")):
            name = before.name.removesuffix(f"_{change}_before.json")
            flags = ("--calibration", words.calibration) if change == "int8" else ()
            answers = [asked(words.binary, before, *flags),
                       asked(words.binary, before.with_name(f"{name}_{change}_after.json"))]
            walls = [answer["wall_time"]["total_ms"] for answer in answers]
            line = next((one for one in answers[0]["horizon"] if one["change"] == LINES[change]), None)
            measured = walls[0] / walls[1]
            said = [line[key] for key in ("speedup", "speedup_low", "speedup_high")] if line else [1.0, 1.0, 1.0]
            print(f"{change},{name},{walls[0]:.3f},{walls[1]:.3f},{measured:.3f},{said[0]:.3f},{said[1]:.3f},{said[2]:.3f},"
                  f"{100 * (said[0] / measured - 1):+.1f},{'yes' if said[1] <= measured <= said[2] else 'no'}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "judge"))
    parser.add_argument("--engine", choices=CHANGES, required=True)
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--stacks", choices=("former", "new"), default="former")
    parser.add_argument("--runs", type=int, default=60, help="of ONNX Runtime")
    parser.add_argument("--rounds", type=int, default=8, help="of PyTorch")
    parser.add_argument("--binary")
    parser.add_argument("--calibration")
    words = parser.parse_args()
    warnings.simplefilter("ignore")
    words.keep.mkdir(parents=True, exist_ok=True)
    if words.what == "judge":
        judge(words)
    elif words.engine == "ort":
        record_ort(words)
    else:
        record_torch(words)


if __name__ == "__main__":
    main()
