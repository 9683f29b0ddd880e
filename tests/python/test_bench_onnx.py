"""Graphs of ONNX Runtime in `bench nongemm`: quantized without copies of all weights, with shared weights, and a user's own."""

import contextlib
import gzip
import json
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
for package in ("onnxruntime", "onnx", "onnxscript"):
    pytest.importorskip(package)

import numpy  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402

from headroom import (nongemm_models, nongemm_onnx, nongemm_onnx_file, nongemm_onnx_int8, nongemm_shared_weights,  # noqa: E402
                      onnx_rewriting)


class Words(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.inner, self.outer = torch.nn.Embedding(50, 64), torch.nn.Linear(64, 96), torch.nn.Linear(96, 80)

    def forward(self, words):
        return self.outer(torch.relu(self.inner(self.table(words))))


def exported(folder, share=False):
    torch.manual_seed(1)
    program = torch.onnx.export(Words().eval(), (torch.zeros(2, 7, dtype=torch.long),), dynamo=True, verbose=False)
    path = str(folder / "model.onnx")
    if share:
        import onnx_ir
        assert nongemm_shared_weights.share(program.model, str(folder)) == [nongemm_shared_weights.STATED]
        onnx_ir.save(program.model, path)
    else:
        program.save(path, external_data=True)
    model = onnx.load(path, load_external_data=False)
    del model.graph.value_info[:]
    onnx.save(model, path)
    return path


def run(path, words):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: words})[0]


def test_int8_is_that_of_the_tool_without_its_copies(tmp_path, monkeypatch):
    from onnxruntime.quantization import QuantType, quant_utils, quantize_dynamic
    path, words = exported(tmp_path), numpy.arange(14, dtype=numpy.int64).reshape(2, 7)
    quantize_dynamic(path, str(tmp_path / "plain.onnx"), weight_type=QuantType.QInt8, use_external_data_format=True)
    monkeypatch.setattr(quant_utils, "copy", None)  # what copies all weights cannot
    before = os.getcwd()
    nongemm_onnx_int8.quantize(path, str(tmp_path / "ours.onnx"))
    assert os.getcwd() == before
    graphs = [onnx.load(str(tmp_path / name), load_external_data=False).graph for name in ("plain.onnx", "ours.onnx")]
    assert [node.op_type for node in graphs[0].node] == [node.op_type for node in graphs[1].node]
    assert "MatMulInteger" in {node.op_type for node in graphs[1].node}
    assert numpy.array_equal(run(str(tmp_path / "plain.onnx"), words), run(str(tmp_path / "ours.onnx"), words))


def test_weights_that_are_turned_over_are_in_no_message(tmp_path, monkeypatch):
    """Of a Gemm the tool turns the weight over, and holds it; protobuf writes no message of 2 GB."""
    helper, weight = onnx.helper, numpy.random.default_rng(0).standard_normal((64, 32), "float32")
    graph = helper.make_graph([helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)], "g",
                              [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 32])],
                              [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 64])],
                              [onnx.numpy_helper.from_array(weight, "w")])
    path = str(tmp_path / "plain.onnx")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path,
              save_as_external_data=True, location="plain.data")
    written = {}
    inferred = onnx.shape_inference.infer_shapes_path
    monkeypatch.setattr(onnx.shape_inference, "infer_shapes_path", lambda given, to: (
        written.__setitem__(os.path.basename(given), os.path.getsize(given)), inferred(given, to))[1])
    nongemm_onnx_int8.quantize(path, str(tmp_path / "ours.onnx"))
    assert written["without-shapes.onnx"] < weight.nbytes
    words = numpy.random.default_rng(1).standard_normal((2, 32), "float32")
    assert numpy.allclose(run(str(tmp_path / "ours.onnx"), words), words @ weight.T, atol=1)


def test_what_could_not_be_quantized_is_not_tried_again():
    class Graph(nongemm_onnx.Graph):
        tried = 0

        def _int8(self, path):
            self.tried += 1
            raise nongemm_models.Refused("too large")

    graph = Graph(numpy.dtype("float32"))
    for _ in range(2):
        with pytest.raises(nongemm_models.Refused, match="too large"):
            graph.path("int8")
    assert graph.tried == 1


def test_a_version_without_these_helpers_does_as_it_comes(tmp_path, monkeypatch):
    monkeypatch.setattr(nongemm_onnx_int8, "READS_AGAIN", "a_name_that_no_version_has")
    nongemm_onnx_int8.quantize(exported(tmp_path), str(tmp_path / "ours.onnx"))
    assert run(str(tmp_path / "ours.onnx"), numpy.zeros((2, 7), numpy.int64)).shape == (2, 7, 80)


def test_weights_that_share_a_file(tmp_path, monkeypatch):
    for name, value in (("FROM_BYTES", 1), ("LEAST_BYTES", 4096), ("SLACK_BYTES", 1 << 18)):
        monkeypatch.setattr(nongemm_shared_weights, name, value)
    path = exported(tmp_path, share=True)
    assert sorted(os.listdir(tmp_path)) == ["model.onnx", "shared.weights"]
    assert (tmp_path / "shared.weights").stat().st_size == 4 * 96 * 80 + (1 << 18)
    model = onnx.load(path)  # with the weights
    weights = {weight.name: onnx.numpy_helper.to_array(weight) for weight in model.graph.initializer}
    large = [weight for weight in weights.values() if weight.nbytes >= 4096]
    assert len(large) == 3 and all(weight.std() == pytest.approx(0.02, rel=0.05) for weight in large)
    assert not numpy.array_equal(large[0].flatten()[:1000], large[1].flatten()[:1000])
    nongemm_onnx_int8.quantize(path, str(tmp_path / "int8.onnx"))
    words = numpy.arange(14, dtype=numpy.int64).reshape(2, 7)
    wanted = run(path, words)
    assert numpy.abs(run(str(tmp_path / "int8.onnx"), words) - wanted).max() < 0.1 * numpy.abs(wanted).max()
    assert (tmp_path / "shared.int8").stat().st_size == (4 * 96 * 80 + (1 << 18)) // 4
    places = [entry.value for weight in onnx.load(str(tmp_path / "int8.onnx"), load_external_data=False).graph.initializer
              for entry in weight.external_data if entry.key == "location"]
    assert sorted(places) == ["shared.int8", "shared.int8", "shared.uint8"]  # a table is quantized as what goes into products


def shared_gemm(folder, nodes):
    """Nodes of Gemm by one weight of the shared file, which they want turned over."""
    weight = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[64, 32], data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", nongemm_shared_weights.FILE), ("offset", 0), ("length", 4 * 64 * 32)):
        weight.external_data.add(key=key, value=str(value))
    nongemm_shared_weights.write_again_and_again(nongemm_shared_weights.pool_values().tobytes(),
                                                 str(folder / nongemm_shared_weights.FILE), 4 * 64 * 32)
    helper = onnx.helper
    graph = helper.make_graph([helper.make_node("Gemm", ["x", "w"], [f"y{place}"], transB=1) for place in range(nodes)], "g",
                              [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 32])],
                              [helper.make_tensor_value_info(f"y{place}", onnx.TensorProto.FLOAT, [2, 64])
                               for place in range(nodes)], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_shared_weights_are_taken_as_they_lie(tmp_path):
    """None of them is turned over in memory, and the product has the same sizes."""
    model = shared_gemm(tmp_path, 1)
    nongemm_shared_weights.take_as_they_lie(model)
    path = str(tmp_path / "plain.onnx")
    onnx.save(model, path)
    assert list(model.graph.initializer[0].dims) == [32, 64]
    given = numpy.random.default_rng(0).standard_normal((2, 32), "float32")
    wanted = given @ nongemm_shared_weights.pool_values()[:32 * 64].reshape(32, 64)
    assert numpy.allclose(run(path, given), wanted, atol=1e-5)
    nongemm_onnx_int8.quantize(path, str(tmp_path / "int8.onnx"))
    assert not (tmp_path / "turned.weights").exists()
    assert numpy.abs(run(str(tmp_path / "int8.onnx"), given) - wanted).max() < 0.1 * numpy.abs(wanted).max()


def test_what_two_products_take_is_left(tmp_path):
    """One of them might want it as it is."""
    model = shared_gemm(tmp_path, 2)
    before = model.SerializeToString()
    nongemm_shared_weights.take_as_they_lie(model)
    assert model.SerializeToString() == before


class Windows(torch.nn.Module):
    """What the exporter's rules rewrite, among them one that ends in two nodes: slices, casts and paddings."""

    def forward(self, values):
        padded = torch.nn.functional.pad(values, (0, 2, 0, 2)).float().roll((1, 1), (2, 3))
        return torch.nn.functional.relu(padded[:, :, :4].clamp(0, 6) + padded[:, :, 4:8].to(torch.float32)).split(3, dim=3)


def test_the_exporter_looks_at_operators_first():
    """And writes the same graph: patterns that end in several nodes are searched for at fewer nodes."""
    from onnxscript.rewriter import _matcher
    searches, graphs = [], []
    theirs = _matcher.SimplePatternMatcher.match

    def counted(self, model, graph, node, **named):
        searches[-1] += len(self.pattern.output_nodes) > 1
        return theirs(self, model, graph, node, **named)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_matcher.SimplePatternMatcher, "match", counted)
        for way in (contextlib.nullcontext, onnx_rewriting.looking_at_operators_first):
            searches.append(0)
            with way():
                program = torch.onnx.export(Windows().eval(), (torch.zeros(1, 2, 8, 8),), dynamo=True, verbose=False)
            graphs.append([(node.op_type, list(node.input), list(node.output)) for node in program.model_proto.graph.node])
        assert _matcher.SimplePatternMatcher.match is counted
    assert graphs[0] == graphs[1] and graphs[0]
    assert searches[1] < searches[0]


def test_small_models_keep_their_weights(tmp_path):
    torch.manual_seed(1)
    program = torch.onnx.export(Words().eval(), (torch.zeros(2, 7, dtype=torch.long),), dynamo=True, verbose=False)
    assert nongemm_shared_weights.share(program.model, str(tmp_path)) == []
    assert not list(tmp_path.iterdir())


def test_both_engines_give_the_same(tmp_path):
    path, words = exported(tmp_path), torch.randint(50, (2, 7))
    torch.manual_seed(1)
    with torch.no_grad():
        wanted = Words().eval()(words).numpy()
    assert numpy.allclose(run(path, words.numpy()), wanted, atol=1e-5)


def graph_of(folder, nodes, inputs, weights=()):
    """A file of its nodes as text, its inputs and weights."""
    helper = onnx.helper
    graph = helper.make_graph(nodes, "made", [helper.make_tensor_value_info(name, kind, sizes) for name, kind, sizes in inputs],
                              [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
                              [onnx.numpy_helper.from_array(value, name) for name, value in weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return model


class Input:
    def __init__(self, name, kind):
        self.name, self.type = name, f"tensor({kind})"


def test_shapes_are_as_the_program_said():
    given = [Input("a", "float16"), Input("b", "int32"), Input("c", "double"), Input("d", "bool")]
    shapes = [[[0, 2], [3, 0]], [[5, 0]], [], [[1, 1]]]
    made = nongemm_onnx_file.feeds(onnx.ModelProto(), given, shapes, batch=4)
    found = {name: (value.numpy().dtype, list(value.numpy().shape)) for name, value in made.items()}
    assert found == {"a": (numpy.float16, [8, 3]), "b": (numpy.int32, [5]), "c": (numpy.float64, []), "d": (numpy.bool_, [5])}
    with pytest.raises(nongemm_models.Refused, match="wants 4 inputs"):
        nongemm_onnx_file.feeds(onnx.ModelProto(), given, shapes[:3], 4)
    with pytest.raises(nongemm_models.Refused, match="which is not made here"):
        nongemm_onnx_file.feeds(onnx.ModelProto(), [Input("a", "string")], [[]], 4)


def test_inputs_beyond_the_memory_are_not_made(monkeypatch):
    monkeypatch.setattr(numpy.random, "default_rng", None)  # nothing is drawn
    with pytest.raises(nongemm_models.Refused, match="its inputs take 70368.7 GB"):
        nongemm_onnx_file.feeds(onnx.ModelProto(), [Input("x", "float")], [[[1 << 22, 0], [1 << 22, 0]]], 1)


@pytest.mark.parametrize("sizes, axis", [([8, 4], 2), ([8, 4], -3), ([0, 4], 0), ([], 0)])
def test_a_table_that_is_none_is_refused(tmp_path, sizes, axis):
    model = graph_of(tmp_path, [onnx.helper.make_node("Gather", ["table", "x"], ["y"], axis=axis)],
                     [("x", onnx.TensorProto.INT64, [2])], [("table", numpy.zeros(sizes, "float32"))])
    with pytest.raises(nongemm_models.Refused, match="it picks from 'table'"):
        nongemm_onnx_file.rows_of_tables(model)


def test_nodes_that_take_or_make_nothing(tmp_path):
    nodes = [onnx.helper.make_node(kind, taken, made) for kind in ("Cast", "Gather", "Identity")
             for taken, made in (([], ["y"]), (["table"], []), ([], []))]
    model = graph_of(tmp_path, nodes, [("x", onnx.TensorProto.INT64, [2])], [("table", numpy.zeros((2, 2), "float32"))])
    assert nongemm_onnx_file.rows_of_tables(model) == {}


def bench_of_file(binary, folder, *flags):
    return subprocess.run([binary, "bench", "nongemm", "model.onnx", "--seconds", "0.05", "--threads", "1", "--fuse", "none",
                           "--quantize", "none", "--json", *flags], cwd=folder, capture_output=True, text=True, timeout=300,
                          check=False, env={**os.environ, "HEADROOM_PYTHON": sys.executable})


def test_one_name_has_one_size_in_all_inputs(headroom_binary, tmp_path):
    """By its place alone the first dimension of b would be the batch, and the product would not fit."""
    kind = onnx.TensorProto.FLOAT
    graph_of(tmp_path, [onnx.helper.make_node("MatMul", ["a", "b"], ["y"])], [("a", kind, ["batch", "inner"]),
                                                                              ("b", kind, ["inner", 3])])
    done = bench_of_file(headroom_binary, tmp_path, "--batches", "1,2", "--keep", "kept")
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]
    shapes = set()
    for file in (tmp_path / "kept").glob("*whole.trace.json.gz"):
        with gzip.open(file, "rt") as trace:
            shapes |= {json.dumps(event["args"]["input_type_shape"]) for event in json.load(trace)
                       if event.get("args", {}).get("op_name") == "MatMul"}
    assert shapes == {json.dumps([{"float": [batch, 512]}, {"float": [512, 3]}]) for batch in (1, 2)}


def test_a_size_that_nobody_knows_is_refused_at_once(headroom_binary, tmp_path):
    graph_of(tmp_path, [onnx.helper.make_node("Relu", ["x"], ["y"])], [("x", onnx.TensorProto.FLOAT, ["n", 3, "height", 8])])
    done = bench_of_file(headroom_binary, tmp_path, "--batches", "1")
    assert done.returncode == 3 and "'height' open" in done.stderr and "make_dynamic_shape_fixed" in done.stderr, done.stderr


def test_a_file_that_asks_for_all_memory_is_refused(headroom_binary, tmp_path):
    graph_of(tmp_path, [onnx.helper.make_node("Relu", ["x"], ["y"])], [("x", onnx.TensorProto.FLOAT, [1 << 22, 1 << 22])])
    done = bench_of_file(headroom_binary, tmp_path, "--batches", "1")
    assert done.returncode == 4, done.stderr
    assert "its inputs take" in json.loads(done.stdout)["not_measured"][0]["reason"]


def test_a_users_file_is_given_what_it_takes(tmp_path):
    model = onnx.load(exported(tmp_path))
    words = model.graph.input[0].name
    assert nongemm_onnx_file.rows_of_tables(model) == {words: 50}
    assert nongemm_onnx_file.weights_of(model)[1] == "fp32"
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    feeds = nongemm_onnx_file.feeds(model, session.get_inputs(), [[[2, 0], [7, 0]]], 1)
    picked = feeds[words].numpy()
    assert picked.shape == (2, 7) and picked.dtype == numpy.int64 and 0 <= picked.min() and picked.max() < 50
    assert len(set(picked.flatten())) > 1
    with pytest.raises(nongemm_models.Refused, match="cannot be read as ONNX"):
        nongemm_onnx_file.read(str(tmp_path / "nothing.onnx"))


def test_a_users_file_is_measured_by_its_own_engine(headroom_binary, tmp_path):
    exported(tmp_path)
    done = subprocess.run([headroom_binary, "bench", "nongemm", "model.onnx", "--batches", "1", "--seconds", "0.05", "--threads",
                           "1", "--fuse", "none,all,all-MatMulAddFusion", "--quantize", "none,int8", "--keep", "kept", "--json"],
                          cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
                          env={**os.environ, "HEADROOM_PYTHON": sys.executable})
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]
    rows = {(row["setting"]["quantize"], row["setting"]["fusion"]): row for row in json.loads(done.stdout)["rows"]}
    assert set(rows) == {(quantize, fusion) for quantize in ("none", "int8") for fusion in ("none", "all", "all-MatMulAddFusion")}
    assert {row["setting"]["engine"] for row in rows.values()} == {"onnxruntime"}
    assert all(row["parameters"] == 50 * 64 + 65 * 96 + 97 * 80 for row in rows.values())
    operators = {}
    for fusion in ("none", "all", "all-MatMulAddFusion"):
        name = next((tmp_path / "kept").glob(f"*none-{fusion}-whole.trace.json.gz")).name
        with gzip.open(tmp_path / "kept" / name, "rt") as trace:
            operators[fusion] = {event["args"]["op_name"] for event in json.load(trace)
                                 if event.get("args", {}).get("op_name")}
    assert operators["all-MatMulAddFusion"] != operators["all"]  # the engine knows that name


def test_a_users_file_that_is_none_is_refused_at_once(headroom_binary, tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"\xff" * 64)
    done = subprocess.run([headroom_binary, "bench", "nongemm", "model.onnx"], cwd=tmp_path, capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 3 and "model.onnx" in done.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["model.onnx"]
