"""A user's own ONNX file in `headroom bench nongemm`: what it is given, since nobody says.

How large its open dimensions are the program has said, by the rules of `headroom ops --model FILE.onnx`
(src/model/onnx_dimensions.cpp). Values are random; integers that pick rows of a table stay within it, others are ones. The
file is nobody's friend: what it says of sizes is held against the memory there is before anything is made of it.

What quantizing to int8 reads is a copy with all weights in one file, which takes them through memory once. Links to the
user's files would not: onnx 1.23 and ONNX Runtime 1.31 follow no link from a graph's folder, whose weights might be anywhere.
"""

import math
import os

from headroom.device_probe import available_host_bytes
from headroom.nongemm_models import Refused

FLOATS = {"FLOAT": "fp32", "FLOAT16": "fp16", "BFLOAT16": "bf16"}  # ONNX's word, ours
ROOM_OF_MEMORY = 0.5  # of what is free: what inputs may take
# ONNX Runtime's word, numpy's, and what is drawn in its place: numpy draws no float16.
KINDS = {"float": ("float32", "float32"), "double": ("float64", "float64"), "float16": ("float16", "float32"),
         "int64": ("int64", "int64"), "int32": ("int32", "int32"), "bool": ("bool", "bool"), "uint8": ("uint8", "uint8"),
         "int8": ("int8", "int8")}


def read(path):
    """The graph, whose weights stay where they are."""
    import onnx
    try:
        return onnx.load(path, load_external_data=False)
    except Exception as error:
        raise Refused(f"{path} cannot be read as ONNX: {error}") from error


def kind_of(tensor):
    import onnx
    return onnx.TensorProto.DataType.Name(tensor.data_type)


def weights_of(model):
    """How many numbers its floating-point weights hold, and in which type most of them are."""
    counts = {}
    for tensor in model.graph.initializer:
        if kind_of(tensor) in FLOATS:
            counts[kind_of(tensor)] = counts.get(kind_of(tensor), 0) + math.prod(tensor.dims)
    most = max(counts, key=counts.get, default="FLOAT")
    return sum(counts.values()), FLOATS[most]


def rows_of_tables(model):
    """Of each input that picks rows of a weight, how many there are."""
    sizes = {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    rows, same = {}, {}
    for node in model.graph.node:
        if node.op_type in ("Cast", "Identity") and node.input and node.output:
            same[node.output[0]] = same.get(node.input[0], node.input[0])
        if node.op_type == "Gather" and len(node.input) > 1 and node.input[0] in sizes:
            axis = next((one.i for one in node.attribute if one.name == "axis"), 0)
            table = sizes[node.input[0]]
            if not -len(table) <= axis < len(table) or table[axis] < 1:
                raise Refused(f"it picks from {node.input[0]!r} along axis {axis}, and that has the sizes {table}")
            picked = same.get(node.input[1], node.input[1])
            rows[picked] = min(rows.get(picked, math.inf), table[axis])
    return rows


def kind_of_input(given):
    kind = KINDS.get(given.type.removeprefix("tensor(").removesuffix(")"))
    if kind is None:
        raise Refused(f"its input {given.name!r} is a {given.type}, which is not made here")
    return kind


def value_for(given, shape, rows, generator):
    import numpy
    import onnxruntime
    kind, drawn = kind_of_input(given)
    if drawn.startswith("float"):
        numbers = generator.standard_normal(shape, dtype=drawn).astype(kind, copy=False)
    elif drawn.startswith("int") and given.name in rows:
        numbers = generator.integers(0, min(rows[given.name], numpy.iinfo(kind).max), shape, dtype=kind)
    else:
        numbers = numpy.ones(shape, kind)
    return onnxruntime.OrtValue.ortvalue_from_numpy(numpy.asarray(numbers, kind, order="C"))


def shapes_of(inputs, shapes, batch):
    """Of the session's inputs: what the program said of each dimension, [fixed, times the batch]."""
    if len(inputs) != len(shapes):
        raise Refused(f"the engine wants {len(inputs)} inputs of it where the file has {len(shapes)}")
    return [[fixed + times * batch for fixed, times in shape] for shape in shapes]


def check_room(inputs, shapes):
    import numpy
    wanted = sum(math.prod(shape) * sum(numpy.dtype(kind).itemsize for kind in set(kind_of_input(given)))
                 for given, shape in zip(inputs, shapes))
    room = available_host_bytes()
    if wanted > ROOM_OF_MEMORY * room:
        raise Refused(f"its inputs take {wanted / 1e9:.1f} GB, and {room / 1e9:.1f} GB of memory are free")


def feeds(model, inputs, shapes, batch):
    """Random values for a session's inputs."""
    import numpy
    shapes = shapes_of(inputs, shapes, batch)
    check_room(inputs, shapes)
    generator, rows = numpy.random.default_rng(1), rows_of_tables(model)
    return {given.name: value_for(given, shape, rows, generator) for given, shape in zip(inputs, shapes)}


def with_weights_in(model_path, folder):
    """The file's copy in `folder`, all of whose weights are in one file beside it, as quantizing wants them."""
    import onnx
    path = os.path.join(folder, "given.onnx")
    onnx.save(onnx.load(model_path), path, save_as_external_data=True, location="given.onnx.data")
    return path
