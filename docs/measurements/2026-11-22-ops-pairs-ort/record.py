#!/usr/bin/env python3
"""Holds the horizon of `headroom ops` against changes that were really made, in ONNX Runtime on a CPU:
graphs fused and not fused, in float32 and in dynamic int8.

Each graph is a stack of transformer layers with random weights, written out in plain operators. It
is profiled before and after the change, run by run in turns, on one thread; of many runs the
fastest counts on either side, since other work on the machine makes runs slower, never faster.

The horizon sees the profile before alone. How many times faster a group of operators becomes
(--faster) is given to it in two ways:
  own     as the pair itself has it: what is judged is the replay, that is whether a step follows
          from its parts;
  others  the middle of what the other graphs' pairs have: what is judged is the prediction.
What is more after the change (quantize was not there before; a group may be slower) is added, from
the pair or from the others, by the float that goes into a product.

What int8 gives is asked in a third way, too:
  rates   the horizon's own line for linear layers in int8, with the rates that the other graphs'
          linear layers reached here, their middle, as --device cpu,fp32=..,int8=..
  calibrated  that line by --calibration FILE, which `headroom bench device --threads 1` wrote on
          this machine: of PyTorch's layers, not of ONNX Runtime's

Usage: record.py --binary PATH [--runs 40] [--calibration FILE] [--keep FOLDER]   (with onnx and onnxruntime)
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

GRAPHS = {  # layers, width, heads, tokens
    "small": (4, 256, 4, 128),
    "wide": (2, 1024, 16, 64),
    "long": (3, 384, 6, 384),
    "middle": (3, 640, 10, 160),
}


class Graph:
    """A graph in the making, every operator of its own as an exporter writes it."""

    def __init__(self, seed):
        self.random = numpy.random.default_rng(seed)
        self.nodes = []
        self.weights = []

    def constant(self, values):
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(numpy.asarray(values), name))
        return name

    def weight(self, *sizes):
        return self.constant((self.random.standard_normal(sizes) * 0.02).astype(numpy.float32))

    def add(self, operation, *inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operation, inputs, [name], f"n{len(self.nodes)}",
                                           **attributes))
        return name

    def number(self, value):
        return self.constant(numpy.float32(value))

    def norm(self, x, width):
        centred = self.add("Sub", x, self.add("ReduceMean", x, axes=[-1]))
        variance = self.add("ReduceMean", self.add("Pow", centred, self.number(2)), axes=[-1])
        root = self.add("Sqrt", self.add("Add", variance, self.number(1e-5)))
        scaled = self.add("Mul", self.add("Div", centred, root),
                          self.constant(numpy.ones(width, numpy.float32)))
        return self.add("Add", scaled, self.constant(numpy.zeros(width, numpy.float32)))

    def gelu(self, x):
        error = self.add("Erf", self.add("Div", x, self.number(2 ** 0.5)))
        half = self.add("Mul", x, self.add("Add", error, self.number(1)))
        return self.add("Mul", half, self.number(0.5))

    def linear(self, x, width, out):
        return self.add("Add", self.add("MatMul", x, self.weight(width, out)), self.weight(out))

    def layer(self, x, width, heads, tokens):
        sizes = self.constant(numpy.array([1, tokens, heads, width // heads], numpy.int64))
        joined = self.constant(numpy.array([1, tokens, width], numpy.int64))
        normed = self.norm(x, width)
        parts = {}
        for part, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
            split = self.add("Reshape", self.linear(normed, width, width), sizes)
            parts[part] = self.add("Transpose", split, perm=order)
        scores = self.add("Div", self.add("MatMul", parts["q"], parts["k"]),
                          self.number((width // heads) ** 0.5))
        mixed = self.add("MatMul", self.add("Softmax", scores, axis=-1), parts["v"])
        flat = self.add("Reshape", self.add("Transpose", mixed, perm=[0, 2, 1, 3]), joined)
        x = self.add("Add", x, self.linear(flat, width, width))
        up = self.gelu(self.linear(self.norm(x, width), width, 4 * width))
        return self.add("Add", x, self.linear(up, 4 * width, width))


def write(path, layers, width, heads, tokens):
    graph = Graph(1)
    x = "x"
    for _ in range(layers):
        x = graph.layer(x, width, heads, tokens)
    shape = [1, tokens, width]
    made = helper.make_graph(graph.nodes, "stack",
                             [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                             [helper.make_tensor_value_info(x, TensorProto.FLOAT, shape)],
                             graph.weights)
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
              path)
    return numpy.ones(shape, numpy.float32)


def session(path, level, folder):
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.graph_optimization_level = level
    options.profile_file_prefix = str(folder / "profile")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def fastest_run(opened, path):
    """Keeps the fastest run of the session's profile at `path`; its milliseconds."""
    events = json.loads(Path(opened.end_profiling()).read_text())
    runs = [event for event in events if event["name"] == "model_run"]
    best = min(runs, key=lambda event: event["dur"])
    begin, end = best["ts"], best["ts"] + best["dur"]
    path.write_text(json.dumps([event for event in events
                                if begin <= event["ts"] and event["ts"] + event["dur"] <= end]))
    return best["dur"] / 1e3


def ops(binary, path, *flags):
    done = subprocess.run([binary, "ops", str(path), "--json", *flags], capture_output=True,
                          text=True, check=True)
    return json.loads(done.stdout)


def record_pair(before, after, x, runs, folder, name):
    """Both sessions in turns; the profiles of their fastest runs."""
    paths = []
    opened = [before, after]
    for _ in range(runs):
        for one in opened:
            one.run(None, {"x": x})
    for one, side in zip(opened, ("before", "after")):
        paths.append(folder / f"{name}_{side}.json")
        fastest_run(one, paths[-1])
    return paths


def group_ms(answer):
    return {group["name"]: group["ms"] for group in answer["wall_time"]["groups"]}


def changes_of(before, after, floats):
    """By group how many times faster, 1 where it is slower; and what is more than before, in ms a
    million floats into products."""
    factors = {}
    for name, ms in before.items():
        if name != "idle" and ms > 0:
            factors[name] = min(max(ms / after[name], 1), 1e6) if after[name] > 0 else 1e6
    more = sum(max(0, ms - before[name]) for name, ms in after.items() if name != "idle")
    return factors, more / floats * 1e6


def predicted(binary, path, factors, new_ms):
    if factors:
        words = ",".join(f"{name}={factor:.6f}"
                         for name, factor in factors.items())
        answer = ops(binary, path, "--faster", words)
        line = next(one for one in answer["horizon"] if one["change"].startswith("faster:"))
        speedup = line["speedup"]
    else:
        answer, speedup = ops(binary, path), 1.0
    wall = answer["wall_time"]["total_ms"]
    return wall / (wall / speedup + new_ms)


def linear_ms(path):
    """What a run's linear layers take: products with a weight, and whatever quantizes for them."""
    total = 0
    for event in json.loads(Path(path).read_text()):
        if event.get("cat") != "Node":
            continue
        name = event["args"].get("op_name", "")
        is_product = name in ("MatMul", "FusedMatMul", "Gemm")
        has_weight = int(event["args"].get("parameter_size", "0") or 0) > 0
        if (is_product and has_weight) or "Quant" in name or "Integer" in name:
            total += event["dur"] / 1e3
    return total


def by_rates(binary, path, rates):
    """The horizon's speedup with linear layers in int8; rates in GFLOP/s."""
    fp32, int8 = (statistics.median(one) for one in zip(*rates))
    device = f"cpu,fp32={fp32:.1f}GFLOPS,int8={int8:.1f}GFLOPS,bandwidth=20GB/s"
    return int8_line(binary, path, "--device", device)


def int8_line(binary, path, *flags):
    answer = ops(binary, path, *flags)
    return next(one["speedup"] for one in answer["horizon"] if one["change"] == "gemm_int8_fused")


def middle(changes, groups):
    """Of several pairs: the middle factor of each group that the graph has."""
    found = {}
    for name in groups:
        factors = [factors[name] for factors, _ in changes if name in factors]
        if factors:
            found[name] = statistics.median(factors)
    return found, statistics.median(new for _, new in changes)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--calibration")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    level = onnxruntime.GraphOptimizationLevel
    pairs = {}
    reached = {}  # GFLOP/s of linear layers, in float32 and in int8
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name, sizes in GRAPHS.items():
            plain, quantized = folder / f"{name}.onnx", folder / f"{name}_int8.onnx"
            x = write(plain, *sizes)
            quantize_dynamic(str(plain), str(quantized), weight_type=QuantType.QInt8)
            layers, width, _, tokens = sizes
            floats = layers * tokens * width * (3 + 1 + 1 + 4)  # into the linear layers
            basic = lambda path: session(path, level.ORT_ENABLE_BASIC, folder)
            extended = lambda path: session(path, level.ORT_ENABLE_EXTENDED, folder)
            for change, before, after in (("fused", basic(plain), extended(plain)),
                                          ("int8", extended(plain), extended(quantized))):
                paths = record_pair(before, after, x, options.runs, folder, f"{name}_{change}")
                answers = [ops(options.binary, path) for path in paths]
                groups = [group_ms(answer) for answer in answers]
                walls = [answer["wall_time"]["total_ms"] for answer in answers]
                pairs[change, name] = (paths[0], walls, groups[0],
                                       changes_of(groups[0], groups[1], floats), floats)
                if change == "int8":
                    gigaflops = layers * 2 * tokens * 12 * width * width / 1e9
                    reached[name] = [gigaflops / linear_ms(path) * 1e3 for path in paths]
        print("change,graph,before_ms,after_ms,measured,own,own_error_pct,others,others_error_pct,"
              "rates,rates_error_pct,calibrated,calibrated_error_pct")
        for (change, name), (path, walls, groups, own, floats) in pairs.items():
            measured = walls[0] / walls[1]
            others = middle([pair[3] for (kind, other), pair in pairs.items()
                             if kind == change and other != name],
                            [group for group, ms in groups.items() if ms > 0])
            line = [change, name, f"{walls[0]:.3f}", f"{walls[1]:.3f}", f"{measured:.3f}"]
            for factors, new in (own, others):
                speedup = predicted(options.binary, path, factors, new * floats / 1e6)
                line += [f"{speedup:.3f}", f"{100 * (speedup / measured - 1):+.1f}"]
            said = []
            if change == "int8":
                said.append(by_rates(options.binary, path,
                                     [rates for other, rates in reached.items() if other != name]))
            if change == "int8" and options.calibration:
                said.append(int8_line(options.binary, path, "--calibration", options.calibration))
            for speedup in said:
                line += [f"{speedup:.3f}", f"{100 * (speedup / measured - 1):+.1f}"]
            print(",".join(line), flush=True)


if __name__ == "__main__":
    main()
