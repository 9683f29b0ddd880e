"""A user's own ONNX file in `headroom bench nongemm`: what it is given, since nobody says.

Open dimensions are taken as `headroom ops --model FILE.onnx` takes them (src/model/onnx_dimensions.cpp): by name (past,
batch, sequence), else by place: a first one is the batch, the second of at most three is the sequence; what is neither has
to be fixed in the file. Values are random; integers that pick rows of a table stay within it, others are ones.
"""

import math
import os

from headroom.nongemm_models import Refused

FLOATS = {"FLOAT": "fp32", "FLOAT16": "fp16", "BFLOAT16": "bf16"}  # ONNX's word, ours
SEQUENCE_WORDS = ("seq", "len", "token")


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
        if node.op_type in ("Cast", "Identity"):
            same[node.output[0]] = same.get(node.input[0], node.input[0])
        if node.op_type == "Gather" and node.input[0] in sizes:
            axis = next((one.i for one in node.attribute if one.name == "axis"), 0)
            picked = same.get(node.input[1], node.input[1])
            rows[picked] = min(rows.get(picked, math.inf), sizes[node.input[0]][axis])
    return rows


def size_of(name, place, rank, batch, tokens):
    """Of an open dimension; None where only the user knows it."""
    word = (name or "").lower()
    if "past" in word and "+" not in word:
        return 0
    if "+" in word:  # of what was there before and what comes
        parts = [int(part) if part.strip().isdigit() else size_of(part.strip(), place, rank, batch, tokens)
                 for part in word.split("+")]
        return None if None in parts else sum(parts)
    if "batch" in word:
        return batch
    if any(part in word for part in SEQUENCE_WORDS) or (place == 1 and rank <= 3):
        return tokens
    return batch if place == 0 else None


def shape_of(given, batch, tokens):
    shape = []
    for place, size in enumerate(given.shape):
        known = size if isinstance(size, int) else size_of(size, place, len(given.shape), batch, tokens)
        if known is None:
            raise Refused(f"its input {given.name!r} leaves dimension {size or place!r} open: fix it in the file "
                          "(python -m onnxruntime.tools.make_dynamic_shape_fixed)")
        shape.append(known)
    return shape


def value_for(given, shape, rows, generator):
    import numpy
    import onnxruntime
    kind = given.type.removeprefix("tensor(").removesuffix(")")
    if kind in ("float", "double", "float16"):
        numbers = generator.standard_normal(shape).astype({"float": "float32"}.get(kind, kind))
    elif kind in ("int64", "int32"):
        table = rows.get(given.name)
        numbers = (generator.integers(0, table, shape) if table else numpy.ones(shape)).astype(kind)
    elif kind in ("bool", "uint8", "int8"):
        numbers = numpy.ones(shape, kind)
    else:
        raise Refused(f"its input {given.name!r} is a {given.type}, which is not made here")
    return onnxruntime.OrtValue.ortvalue_from_numpy(numpy.ascontiguousarray(numbers))


def feeds(model, inputs, batch, tokens):
    """Random values for a session's inputs."""
    import numpy
    generator, rows = numpy.random.default_rng(1), rows_of_tables(model)
    return {given.name: value_for(given, shape_of(given, batch, tokens), rows, generator) for given in inputs}


def with_weights_in(model_path, folder):
    """The file's copy in `folder`, all of whose weights are in one file beside it, as quantizing wants them."""
    import onnx
    path = os.path.join(folder, "given.onnx")
    onnx.save(onnx.load(model_path), path, save_as_external_data=True, location="given.onnx.data")
    return path
