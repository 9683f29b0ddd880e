"""ONNX Runtime's dynamic int8 of a graph whose weights stay in their file: onnxruntime.quantization.quantize_dynamic.

As it comes, it reads all weights twice, copies them once and writes them once before it quantizes the first of them: 16 GB
and more for GPT-2 XL. Here three of its helpers read the graph alone, and one weight at a time; of weights that lie over
one another in one file it quantizes that file's numbers once. What it quantizes, and how, is its own. Where a version has
not these helpers, it does as it comes.
"""

import contextlib
import importlib
import os

from headroom import nongemm_shared_weights

READS = "load_model_with_shape_infer"
READS_AGAIN = "save_and_reload_model_with_shape_infer"
READS_WEIGHT = "tensor_proto_to_array"
QUANTIZES_WEIGHT = "quantize_initializer_impl"


def quantize(graph, quantized):
    """Both are paths in one folder; the second one has a file of its own for what is quantized."""
    from onnxruntime.quantization import QuantType, quantize_dynamic
    folder = os.path.dirname(graph)
    with working_in(folder), weights_in_their_file(folder):
        quantize_dynamic(graph, quantized, weight_type=QuantType.QInt8, use_external_data_format=True)


@contextlib.contextmanager
def working_in(folder):
    """A weight's file is named relative to its graph, and an absolute name is refused."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextlib.contextmanager
def weights_in_their_file(folder):
    import onnx
    # By its path: what the package calls `quantize` is a function.
    entry, base_quantizer, onnx_quantizer, quant_utils = (
        importlib.import_module(f"onnxruntime.quantization.{name}")
        for name in ("quantize", "base_quantizer", "onnx_quantizer", "quant_utils"))

    def with_shapes(path):
        inferred = os.path.join(folder, "inferred.onnx")
        onnx.shape_inference.infer_shapes_path(str(path), inferred)
        model = onnx.load(inferred, load_external_data=False)
        quant_utils.add_infer_metadata(model)
        os.remove(inferred)
        return model

    def with_shapes_again(model):
        # Weights of Gemm it has turned over by now, and holds them as they are: no message of protobuf may have 2 GB.
        place = os.path.join(folder, "without-shapes.onnx")
        onnx.save(model, place, save_as_external_data=True, location="turned.weights")
        model = with_shapes(place)
        os.remove(place)
        return model

    def weight(tensor):
        if not onnx.external_data_helper.uses_external_data(tensor):
            return plain(tensor)
        held = onnx.TensorProto()
        held.CopyFrom(tensor)  # of which reading makes one that holds its values
        onnx.external_data_helper.load_external_data_for_tensor(held, folder)
        return plain(held)

    def quantized(self, tensor, *given, **named):
        if nongemm_shared_weights.place_of(tensor) is None:
            return quantizes(self, tensor, *given, **named)
        names = quantizes(self, nongemm_shared_weights.pool_named(tensor.name), *given, **named)
        nongemm_shared_weights.point_to_its_part(self.model.get_initializer(names[0]), tensor, folder)
        return names

    plain, quantizer = getattr(base_quantizer, READS_WEIGHT, None), getattr(base_quantizer, "BaseQuantizer", None)
    quantizes = getattr(quantizer, QUANTIZES_WEIGHT, None)
    places = [(entry, READS, with_shapes), (onnx_quantizer, READS_AGAIN, with_shapes_again),
              (base_quantizer, READS_WEIGHT, weight), (quantizer, QUANTIZES_WEIGHT, quantized)]
    if not all(hasattr(file, name) for file, name, _ in places):
        yield
        return
    before = [getattr(file, name) for file, name, _ in places]
    for file, name, ours in places:
        setattr(file, name, ours)
    try:
        yield
    finally:
        for (file, name, _), theirs in zip(places, before):
            setattr(file, name, theirs)
