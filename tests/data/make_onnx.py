#!/usr/bin/env python3
"""Writes small ONNX files, by hand as the format is documented (onnx.proto of onnx/onnx), since the
tests need no package for it: tests/golden/ops_model_onnx*, fuzz/corpus/onnx.

Usage: make_onnx.py FOLDER
"""

import struct
import sys
from pathlib import Path

FLOAT, UINT8, INT8, INT64 = 1, 2, 3, 7


def varint(value):
    value &= (1 << 64) - 1
    made = b""
    while value >= 0x80:
        made += bytes([value & 0x7F | 0x80])
        value >>= 7
    return made + bytes([value])


def integer(field, value):
    return varint(field << 3) + varint(value)


def message(field, content):
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def tensor(name, kind, sizes, values=()):
    """Values of int64 are packed; other tensors' data are left out, as external data are."""
    made = b"".join(integer(1, size) for size in sizes) + integer(2, kind) + message(8, name)
    raw = b"".join(struct.pack("<q", value) for value in values)
    return made + (message(9, raw) if raw else b"")


def declared(field, name, kind, sizes):
    shape = b"".join(message(1, integer(1, size) if isinstance(size, int) else message(2, size))
                     for size in sizes)
    return message(field, message(1, name) + message(2, message(1, integer(1, kind)
                                                               + message(2, shape))))


def node(operation, inputs, outputs, **attributes):
    made = b"".join(message(1, name) for name in inputs)
    made += b"".join(message(2, name) for name in outputs) + message(4, operation)
    for name, value in attributes.items():
        inner = message(1, name)
        if isinstance(value, int):
            inner += integer(3, value) + integer(20, 2)
        elif isinstance(value, str):
            inner += message(4, value) + integer(20, 3)
        else:
            inner += b"".join(integer(8, one) for one in value) + integer(20, 7)
        made += message(5, inner)
    return message(1, made)


def weight(name, kind, sizes, values=()):
    return message(5, tensor(name, kind, sizes, values))


def file(*graph):
    return (integer(1, 8) + message(2, "make_onnx.py") + message(7, b"".join(graph))
            + message(8, message(1, "") + integer(2, 17)))


def block(width=1024, heads=16):
    """A transformer's layer: attention by its parts, a perceptron with an operator of our own."""
    head = width // heads
    graph = [declared(11, "x", FLOAT, ["batch_size", "sequence_length", width]),
             declared(12, "y", FLOAT, ["batch_size", "sequence_length", width]),
             weight("norm", FLOAT, [width]), weight("heads", INT64, [4], [0, 0, heads, head]),
             weight("joined", INT64, [3], [0, 0, width]), weight("up", FLOAT, [width, 4 * width]),
             weight("down", FLOAT, [4 * width, width]), weight("bias", FLOAT, [4 * width]),
             node("LayerNormalization", ["x", "norm"], ["n"])]
    for part, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        graph += [weight("w" + part, FLOAT, [width, width]),
                  node("MatMul", ["n", "w" + part], [part + "1"]),
                  node("Reshape", [part + "1", "heads"], [part + "2"]),
                  node("Transpose", [part + "2"], [part], perm=order)]
    graph += [node("MatMul", ["q", "k"], ["scores"]), node("Softmax", ["scores"], ["p"], axis=-1),
              node("MatMul", ["p", "v"], ["a1"]),
              node("Transpose", ["a1"], ["a2"], perm=[0, 2, 1, 3]),
              node("Reshape", ["a2", "joined"], ["a"]), node("Add", ["a", "x"], ["r"]),
              node("MatMul", ["r", "up"], ["u1"]), node("Add", ["u1", "bias"], ["u2"]),
              node("Gelu", ["u2"], ["u"]), node("MatMul", ["u", "down"], ["d"]),
              node("Add", ["d", "r"], ["y"])]
    return file(*graph)


def quantized():
    return file(declared(11, "x", FLOAT, ["batch", 64]), weight("w", INT8, [64, 32]),
                node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
                node("MatMulInteger", ["q", "w", "zero"], ["i"]),
                node("Cast", ["i"], ["f"], to=FLOAT), node("Mul", ["f", "scale"], ["y"]))


def images():
    return file(declared(11, "x", FLOAT, ["N", 3, 64, 64]), weight("w", FLOAT, [8, 3, 3, 3]),
                node("Conv", ["x", "w"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
                node("Relu", ["c"], ["r"]),
                node("MaxPool", ["r"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
                node("GlobalAveragePool", ["m"], ["g"]), node("Flatten", ["g"], ["y"], axis=1))


def any_image():
    """Of a height and a width that the file leaves open."""
    return file(declared(11, "pixels", FLOAT, ["batch", 3, "height", "width"]),
                weight("w", FLOAT, [64, 3, 7, 7]),
                node("Conv", ["pixels", "w"], ["c"], strides=[2, 2], pads=[3, 3, 3, 3]),
                node("Relu", ["c"], ["y"]))


def attention():
    """Of fewer keys than queries, over a cache, by an equation; a product that quantizes within."""
    return file(declared(11, "q", FLOAT, ["batch", 64, 32]), declared(11, "k", FLOAT, ["batch", 5, 32]),
                declared(11, "past", FLOAT, ["batch", 4, "past", 8]), weight("w", INT8, [32, 32]),
                weight("s", FLOAT, [1]), weight("one", FLOAT, [32, 96]),
                node("MultiHeadAttention", ["q", "k", "k"], ["a"], num_heads=4),
                node("GroupQueryAttention", ["q", "k", "k", "past", "past"], ["g", "nk", "nv"],
                     num_heads=4, kv_num_heads=4),
                node("Attention", ["q", "k", "k"], ["o"], q_num_heads=4, kv_num_heads=4),
                node("Einsum", ["a", "k"], ["e"], equation="bqd,bkd->bqk"),
                node("DynamicQuantizeMatMul", ["g", "w", "s"], ["d"]),
                node("MatMul", ["d", "one"], ["y"]), node("AllReduce", ["y"], ["r"]),
                declared(12, "r", FLOAT, ["batch", 64, 96]))


def sizes():
    """Shapes that are computed."""
    return file(declared(11, "x", FLOAT, ["batch", "seq", 12]), weight("one", INT64, [1], [1]),
                weight("end", INT64, [2], [3, 4]), weight("zero", INT64, [1], [0]),
                node("Shape", ["x"], ["s"]), node("Slice", ["s", "zero", "one"], ["b"]),
                node("Gather", ["s", "one"], ["t"]), node("Mul", ["t", "one"], ["t2"]),
                node("Concat", ["b", "t2", "end"], ["sizes"], axis=0),
                node("Reshape", ["x", "sizes"], ["y"]),
                node("ConstantOfShape", ["sizes"], ["mask"]),
                node("Where", ["mask", "y", "y"], ["z"]),
                node("ReduceMean", ["z"], ["r"], axes=[-1], keepdims=0),
                node("Split", ["r"], ["a1", "a2", "a3"], axis=2),
                node("Concat", ["a1", "a2", "a3"], ["c"], axis=-1), node("TopK", ["c", "one"], ["v", "i"]))


def main():
    folder = Path(sys.argv[1])
    for name, made in (("block", block()), ("quantized", quantized()), ("images", images()),
                       ("any_image", any_image()), ("attention", attention()),
                       ("sizes", sizes())):
        (folder / f"{name}.onnx").write_bytes(made)


if __name__ == "__main__":
    main()
