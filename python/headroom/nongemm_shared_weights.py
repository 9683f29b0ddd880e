"""Large models as ONNX graphs whose weights lie over one another in one file of random numbers.

What a graph takes does not depend on the values of its weights, so that on disk there is as much as its largest weight and
not all of them: 0.5 GB in place of 2.7 for Llama-2-7B's two layers, 0.9 in place of 13 for Mixtral's. Each weight begins
elsewhere in the file, further on than a cache holds, so that one does not find another's numbers there. Models below the
limit keep the weights that PyTorch has, and give its outputs.
"""

import math
import os

FROM_BYTES = 1 << 30      # of a model's weights: below that of all models too large to be run whole, with one layer
LEAST_BYTES = 1 << 20     # of a weight; a smaller one stays in the graph
SLACK_BYTES = 256 << 20   # by which beginnings differ: some last-level caches
PAGE = 1 << 16            # of which beginnings are multiples: such parts of a file can be mapped
POOL_VALUES = (1 << 22) - 3
DEVIATION = 0.02
FILE = "shared.weights"
STATED = "its weights lie over one another in one file of random numbers"


def write_pool(path, size):
    import numpy
    pool = (numpy.random.default_rng(1).standard_normal(POOL_VALUES, dtype=numpy.float32) * DEVIATION).tobytes()
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
    write_pool(os.path.join(folder, FILE), size)
    at = 0
    for value in large:
        length = value.const_value.nbytes
        shape = onnx_ir.Shape([int(part) for part in value.const_value.shape])
        value.const_value = onnx_ir.ExternalTensor(FILE, at, length, onnx_ir.DataType.FLOAT, shape=shape, name=value.name,
                                                   base_dir=folder)
        at = (at + math.ceil(length / PAGE) * PAGE) % SLACK_BYTES
    return [STATED]
