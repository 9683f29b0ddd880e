#!/usr/bin/env python3
"""What a linear layer of ONNX Runtime takes in int8 of what it takes in float32, by what is around it in the graph.

Graphs of `count` products with a weight and a bias each: so many that share an input (which int8 then quantizes once), inputs
that come from outside or are written right before (`warm in`), results that are kept to the end or read right behind (`warm
out`). Times are those of the products' nodes, and of what quantizes for them, in ONNX Runtime's profile; the least of 24
runs, on one thread.

Usage: cause.py   (with onnx and onnxruntime; 80 s)
"""

import json
import logging
import os
import tempfile

import numpy
import onnxruntime
from onnx import TensorProto, helper, numpy_helper, save
from onnxruntime.quantization import QuantType, quantize_dynamic

SHAPES = ((64, 1024, 1024, 24), (64, 4096, 1024, 8), (64, 1024, 4096, 8), (160, 640, 640, 48), (384, 384, 384, 64),
          (128, 256, 256, 64))  # m, n, k, count
FORMS = ((2, False, False), (2, True, False), (2, False, True), (2, True, True), (3, True, True), (1, True, True))
RUNS = 25


def write(path, shape, share, warm_in, warm_out):
    m, n, k, count = shape
    random = numpy.random.default_rng(0)
    nodes, weights, inputs, outputs = [], [], [], []
    values, bias = random.standard_normal((k, n), dtype=numpy.float32) * 0.02, random.standard_normal(n, dtype=numpy.float32)
    if warm_in:
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [m, k])]
    for i in range(count // share * share):
        j = i // share
        if i % share == 0 and warm_in:
            weights.append(numpy_helper.from_array(numpy.float32(1 + 0.01 * j), f"c{j}"))
            nodes.append(helper.make_node("Add", ["x", f"c{j}"], [f"x{j}"], name=f"frame_in{j}"))
        elif i % share == 0:
            inputs.append(helper.make_tensor_value_info(f"x{j}", TensorProto.FLOAT, [m, k]))
        weights += [numpy_helper.from_array(values, f"w{i}"), numpy_helper.from_array(bias, f"b{i}")]
        nodes.append(helper.make_node("MatMul", [f"x{j}", f"w{i}"], [f"p{i}"], name=f"product{i}"))
        nodes.append(helper.make_node("Add", [f"p{i}", f"b{i}"], [f"y{i}"], name=f"bias{i}"))
        if warm_out:
            nodes.append(helper.make_node("ReduceMax", [f"y{i}"], [f"z{i}"], name=f"frame_out{i}", keepdims=0))
            outputs.append(helper.make_tensor_value_info(f"z{i}", TensorProto.FLOAT, []))
        else:
            outputs.append(helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, [m, n]))
    graph = helper.make_graph(nodes, "products", inputs, outputs, weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return {one.name: random.random((m, k), dtype=numpy.float32) for one in inputs}


def least_us(path, feeds, count):
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, path + "_profile"
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    for _ in range(RUNS):
        session.run(None, feeds)
    kept = session.end_profiling()
    with open(kept, encoding="utf-8") as file:
        events = sorted(json.load(file), key=lambda event: event["ts"] + event.get("dur", 0))
    os.remove(kept)
    runs, spent = [], 0
    for event in events:
        is_node = event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
        if is_node and not event["name"].startswith("frame"):
            spent += event["dur"]
        elif event["name"] == "model_run":
            runs.append(spent / count)
            spent = 0
    return min(runs[1:])


def main():
    logging.disable(logging.CRITICAL)
    print("m,n,k,products_an_input,warm_in,warm_out,float_us,int8_us,quotient")
    for shape in SHAPES:
        for share, warm_in, warm_out in FORMS:
            count = shape[3] // share * share
            with tempfile.TemporaryDirectory() as folder:
                plain, quantized = folder + "/plain.onnx", folder + "/int8.onnx"
                feeds = write(plain, shape, share, warm_in, warm_out)
                quantize_dynamic(plain, quantized, weight_type=QuantType.QInt8)
                before, after = least_us(plain, feeds, count), least_us(quantized, feeds, count)
            print(f"{shape[0]},{shape[1]},{shape[2]},{share},{warm_in:d},{warm_out:d},{before:.1f},{after:.1f},"
                  f"{after / before:.3f}", flush=True)


if __name__ == "__main__":
    main()
