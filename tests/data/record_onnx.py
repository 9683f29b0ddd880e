#!/usr/bin/env python3
"""Records onnx_fp32.json.gz and onnx_int8.json.gz: three runs each of a small transformer-like graph
in ONNX Runtime on a CPU, in float32 and with its weights quantized to int8 (dynamically).

Usage: record_onnx.py   (with onnx and onnxruntime; what the machine is does not matter)
"""

import gzip
import json
import tempfile
from pathlib import Path

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

HERE = Path(__file__).resolve().parent
TOKENS, WIDTH, RUNS = 64, 128, 3


def model():
    random = numpy.random.default_rng(1)

    def weight(name, *shape):
        return numpy_helper.from_array(random.standard_normal(shape).astype(numpy.float32), name)

    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale", "shift"], ["normed"], axis=-1),
        helper.make_node("MatMul", ["normed", "w1"], ["up"]),
        helper.make_node("Sigmoid", ["up"], ["gate"]),
        helper.make_node("Mul", ["up", "gate"], ["active"]),
        helper.make_node("MatMul", ["active", "w2"], ["down"]),
        helper.make_node("Add", ["down", "x"], ["sum"]),
        helper.make_node("Softmax", ["sum"], ["y"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes, "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, TOKENS, WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, TOKENS, WIDTH])],
        [weight("scale", WIDTH), weight("shift", WIDTH), weight("w1", WIDTH, 4 * WIDTH),
         weight("w2", 4 * WIDTH, WIDTH)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def record(path, name):
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.intra_op_num_threads = 1
    options.profile_file_prefix = str(path.parent / "profile")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    x = numpy.ones((1, TOKENS, WIDTH), numpy.float32)
    for _ in range(RUNS):
        session.run(None, {"x": x})
    events = json.loads(Path(session.end_profiling()).read_text())
    for event in events:  # paths of the machine
        event.get("args", {}).pop("thread_scheduling_stats", None)
    with gzip.GzipFile(str(HERE / name), "wb", mtime=0) as file:
        file.write(json.dumps(events, separators=(",", ":")).encode())


def main():
    with tempfile.TemporaryDirectory() as folder:
        plain, small = Path(folder) / "fp32.onnx", Path(folder) / "int8.onnx"
        onnx.save(model(), plain)
        quantize_dynamic(str(plain), str(small), weight_type=QuantType.QInt8)
        record(plain, "onnx_fp32.json.gz")
        record(small, "onnx_int8.json.gz")


if __name__ == "__main__":
    main()
