"""Large models as ONNX graphs whose weights lie over one another in one file of random numbers.

What a graph takes does not depend on the values of its weights, so that on disk there is as much as its largest weight and
not all of them: 0.5 GB in place of 2.7 for Llama-2-7B's two layers, 0.9 in place of 13 for Mixtral's. Each weight begins
elsewhere in the file, further on than a cache holds, so that one does not find another's numbers there. Models below the
limit keep the weights that PyTorch has, and give its outputs.

What is quantized of them lies in one file for each type too (int8; uint8 of tables), each weight at the place that it has
among the floats: as the file of floats is one pool of numbers again and again, that of int8 is the quantized pool, and
quantizing takes one pool and not all weights.
"""

import collections
import functools
import math
import os

FROM_BYTES = 1 << 30      # of a model's weights: below that of all models too large to be run whole, with one layer
LEAST_BYTES = 1 << 20     # of a weight; a smaller one stays in the graph
SLACK_BYTES = 256 << 20   # by which beginnings differ: some last-level caches
PAGE = 1 << 16            # of which beginnings are multiples: such parts of a file can be mapped
POOL_VALUES = (1 << 22) - 3
DEVIATION = 0.02
FILE = "shared.weights"
BYTES = 4  # of a number in FILE, where what is quantized has one
STATED = "its weights lie over one another in one file of random numbers"


@functools.cache
def pool_values():
    import numpy
    return numpy.random.default_rng(1).standard_normal(POOL_VALUES, dtype=numpy.float32) * DEVIATION


def write_again_and_again(pool, path, size):
    with open(path, "wb") as file:
        for start in range(0, size, len(pool)):
            file.write(pool[:size - start])


def share(model, folder):
    """Points the large weights of an onnx_ir model to one file in `folder`; what there is to say of it."""
    import onnx_ir
    large = [value for value in model.graph.initializers.values()
             if value.const_value is not None and value.const_value.dtype == onnx_ir.DataType.FLOAT
             and value.const_value.nbytes >= LEAST_BYTES]
    if sum(value.const_value.nbytes for value in large) < FROM_BYTES:
        return []
    size = max(value.const_value.nbytes for value in large) + SLACK_BYTES
    write_again_and_again(pool_values().tobytes(), os.path.join(folder, FILE), size)
    at = 0
    for value in large:
        length = value.const_value.nbytes
        shape = onnx_ir.Shape([int(part) for part in value.const_value.shape])
        value.const_value = onnx_ir.ExternalTensor(FILE, at, length, onnx_ir.DataType.FLOAT, shape=shape, name=value.name,
                                                   base_dir=folder)
        at = (at + math.ceil(length / PAGE) * PAGE) % SLACK_BYTES
    return [STATED]


def place_of(tensor):
    """Where the weight begins in FILE, in bytes; None of a weight that lies elsewhere."""
    told = {entry.key: entry.value for entry in tensor.external_data}
    return int(told["offset"]) if told.get("location") == FILE else None


def take_as_they_lie(model):
    """Gemm's weights that are to be turned over have their sizes exchanged instead: random numbers are as good either
    way, and what quantizes would turn over each of them in memory."""
    weights = {tensor.name: tensor for tensor in model.graph.initializer if place_of(tensor) is not None}
    uses = collections.Counter(name for node in model.graph.node for name in node.input)
    for node in model.graph.node:
        turned = next((one for one in node.attribute if one.name == "transB" and one.i), None)
        if node.op_type != "Gemm" or turned is None or node.input[1] not in weights or uses[node.input[1]] > 1:
            continue
        weights[node.input[1]].dims.reverse()
        turned.i = 0


def pool_named(name):
    """What is quantized in place of a weight of that name: the numbers of all of them."""
    import onnx
    return onnx.numpy_helper.from_array(pool_values(), name)


def point_to_its_part(quantized, weight, folder):
    """Makes of the quantized pool the weight's part of the file of its type, which is written where it is not there yet."""
    import onnx
    name = f"shared.{onnx.TensorProto.DataType.Name(quantized.data_type).lower()}"
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        write_again_and_again(quantized.raw_data, path, os.path.getsize(os.path.join(folder, FILE)) // BYTES)
    quantized.dims[:] = weight.dims
    quantized.ClearField("raw_data")
    quantized.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", name), ("offset", place_of(weight) // BYTES), ("length", math.prod(weight.dims))):
        quantized.external_data.add(key=key, value=str(value))
