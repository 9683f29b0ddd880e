"""Measures the products of ONNX Runtime on this processor, in float32 and in dynamic int8.

    python -m headroom.onnx_probe --on cpu --seconds 60 --out points.json

The runner behind `headroom bench device --engine onnxruntime`; what it writes and says, and its exit codes, are those of
device_probe, whose shapes it draws too. A point is a graph of linear layers, each with a weight of its own, so many that
no cache holds them all, with a bias, as layers have, and with an input of its own, which int8 quantizes: products that
share one (queries, keys and values) are a fourth of a transformer's work, and take 4 to 9 % longer, small ones up to 24 %,
as quantizing is a pass of its own there. An input is written right before its product and a result read right behind it, as in a model, so
that both are in a cache and their memory serves again (docs/measurements/2026-11-24-ops-int8-cause). A point's time is
that of the products' nodes in ONNX Runtime's profile, as a recorded model has them, the median over some runs. Other
operators are not measured.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time

from headroom import device_probe
from headroom.device_probe import EXIT_PARTIAL, EXIT_UNAVAILABLE, say

FRAME = "frame"               # begins the names of nodes that are not measured
MOST_GRAPH_BYTES, SHORT_GRAPH_BYTES = 128 << 20, 8 << 20  # of weights; a file of ONNX ends at 2 GiB
LEAST_RUNS, MOST_RUNS = 5, 200
WARM_RUNS = 1
PAIR_SECONDS = 2.0            # about what a shape takes, written, quantized and run in both types


def load_library():
    """Raises ImportError."""
    import onnx  # noqa: F401  (quantization needs it)
    import onnxruntime
    from onnxruntime.quantization import quantize_dynamic  # noqa: F401
    return onnxruntime


def write_products(path, shape, count):
    import numpy
    from onnx import TensorProto, helper, numpy_helper, save
    random, sizes = numpy.random.default_rng(0), (shape["k"], shape["n"])
    nodes, weights, outputs = [], [], []
    values = random.standard_normal(sizes, dtype=numpy.float32) * 0.02
    bias = random.standard_normal(shape["n"], dtype=numpy.float32)
    for i in range(count):
        # Another number each time, or inputs would be made one; adding 0 would be left out.
        weights += [numpy_helper.from_array(values, f"w{i}"), numpy_helper.from_array(bias, f"b{i}"),
                    numpy_helper.from_array(numpy.float32(1 / (1 + i)), f"n{i}")]
        nodes += [helper.make_node("Add", ["x", f"n{i}"], [f"x{i}"], name=f"{FRAME}_in{i}"),
                  helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"p{i}"], name=f"product{i}"),
                  helper.make_node("Add", [f"p{i}", f"b{i}"], [f"y{i}"], name=f"bias{i}"),
                  helper.make_node("ReduceMax", [f"y{i}"], [f"z{i}"], name=f"{FRAME}_out{i}", keepdims=0)]
        outputs.append(helper.make_tensor_value_info(f"z{i}", TensorProto.FLOAT, []))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [shape["m"], shape["k"]])]
    graph = helper.make_graph(nodes, "products", inputs, outputs, weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def nodes_seconds(profile):
    """Of each run what its products took together."""
    runs, spent = [], 0
    for event in sorted(profile, key=lambda event: event["ts"] + event.get("dur", 0)):
        is_frame = event["name"].startswith(FRAME)
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time") and not is_frame:
            spent += event["dur"]
        elif event["name"] == "model_run":
            runs.append(spent * 1e-6)
            spent = 0
    return runs


def take_runs(library, path, feeds, threads, seconds):
    """A sample a run, after the first."""
    options = library.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = path + "_profile"
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4
    session = library.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    end, runs = time.perf_counter() + seconds, 0
    while runs < WARM_RUNS + LEAST_RUNS or (runs < MOST_RUNS and time.perf_counter() < end):
        session.run(None, feeds)
        runs += 1
    kept = session.end_profiling()
    with open(kept, encoding="utf-8") as file:
        samples = nodes_seconds(json.load(file))[WARM_RUNS:]
    os.remove(kept)
    return samples


def point_of(kind, name, shape, samples, count):
    samples = [max(sample, 1e-6) / count for sample in samples]
    return {"class": kind, "rate": name, "shape": shape, "bytes": device_probe.work_of(kind, shape, 4)[1],
            "seconds": statistics.median(samples), "uncertainty": device_probe.half_width(samples),
            "samples": len(samples)}


def take_pair(library, machine, shape, seconds, most_bytes):
    """The product in float32 and in int8."""
    import numpy
    from onnxruntime.quantization import QuantType, quantize_dynamic
    moved = device_probe.work_of("gemm_fp32", shape, 4)[1]
    most = most_bytes // (4 * shape["n"] * shape["k"])
    count = max(1, min(4 * device_probe.turns_for(machine, moved), most))  # as int8 is a quarter as large
    random = numpy.random.default_rng(1)
    feeds = {"x": random.random((shape["m"], shape["k"]), dtype=numpy.float32)}
    points = []
    with tempfile.TemporaryDirectory(prefix="headroom-onnx-") as folder:
        plain, quantized = (os.path.join(folder, name) for name in ("plain.onnx", "int8.onnx"))
        write_products(plain, shape, count)
        quantize_dynamic(plain, quantized, weight_type=QuantType.QInt8)
        for kind, name, path in (("gemm_fp32", "fp32", plain), ("linear_int8", "int8", quantized)):
            samples = take_runs(library, path, feeds, machine.units, seconds / 2)
            points.append(point_of(kind, name, shape, samples, count))
    return points


def take_points(library, machine, arguments):
    rates = device_probe.coarse(device_probe.rough_rates(machine, machine.torch.float32))
    count = min(device_probe.MOST_POINTS, max(device_probe.LEAST_POINTS, round(arguments.seconds / PAIR_SECONDS)))
    most_bytes = SHORT_GRAPH_BYTES if arguments.seconds < device_probe.SHORT_SECONDS else MOST_GRAPH_BYTES
    shapes = device_probe.draw_shapes(arguments.seed, "gemm_fp32", 4, count, rates, device_probe.LONGEST_CALL_SECONDS,
                                      machine.cache_bytes, most_bytes)
    points, started = [], time.perf_counter()
    for done, shape in enumerate(shapes):
        left = arguments.seconds - (time.perf_counter() - started)
        if left < -max(arguments.seconds, device_probe.LEAST_OVERRUN_SECONDS):
            break
        say(f"progress {done} {len(shapes)} products")
        points += take_pair(library, machine, shape, max(0.05, left / (len(shapes) - done) / 2), most_bytes)
    say(f"progress {len(shapes)} {len(shapes)} done")
    return points


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", default="cpu", choices=("cpu",))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0, help="0: as many as PyTorch takes")
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    try:
        import torch
        library = load_library()
    except ImportError as error:
        say(f"it needs PyTorch, onnxruntime and onnx: {error}")
        return EXIT_UNAVAILABLE
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    machine = device_probe.Machine(torch, "cpu")
    identity = {**machine.identity(), "clock_hertz": device_probe.clock_hertz(machine),
                "engine": f"onnxruntime {library.__version__}"}
    say(f"machine {json.dumps(identity)}")
    try:
        with torch.inference_mode():
            memory, latency = device_probe.take_memory(machine), device_probe.take_latency(machine)
            points = take_points(library, machine, arguments)
    except (KeyboardInterrupt, RuntimeError, MemoryError) as error:
        say(f"measuring stopped: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
        return EXIT_PARTIAL
    with open(arguments.out, "w", encoding="utf-8") as file:
        json.dump({"schema": device_probe.SCHEMA, "machine": identity, "seconds": arguments.seconds,
                   "seed": arguments.seed, "points": points, "bandwidth": memory, "latency": latency, "steps": []}, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
