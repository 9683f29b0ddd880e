"""The module tracer: a small module by hand, agreement with the oracle, and clear refusals."""

import json

import pytest
import torch

from families import CONFIGS
from headroom import memory_oracle, trace_module

torch.autograd.set_multithreading_enabled(False)

SOURCE = """
import torch

def build():
    module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(),
                                 torch.nn.Linear(16, 5, bias=False))
    target = torch.zeros(3, dtype=torch.int64, device="cuda:0")
    return module, (torch.randn(3, 8),), lambda out: torch.nn.functional.cross_entropy(out, target)

def no_loss():
    return torch.nn.Linear(8, 16), torch.randn(3, 8)

def depends_on_data():
    class Picker(torch.nn.Module):
        def forward(self, x):
            return x[x > 0].sum()
    return Picker(), torch.randn(3, 8)

def wrong():
    return 3
"""


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def traced(source, name, **over):
    return trace_module.trace(trace_module.load_builder(f"{source}:{name}"), str(source), **over)


def test_a_small_module_by_hand(source):
    graph = traced(source, "build")
    by_name = {p["name"]: p["value"] for p in graph["parameters"]}
    operators = {o["op"]: o for o in graph["operators"]}
    linear, relu = operators["aten.addmm.default"], operators["aten.relu.default"]
    assert linear["module"] == "0" and linear["grad_fn"] == "AddmmBackward0"
    assert linear["args"]["self"] == {"value": by_name["0.bias"]}
    # x is saved for the gradient of the weight; the weight is not: x needs no gradient.
    assert linear["saves"] == [graph["inputs"][0]["value"]]
    assert relu["saves"] == relu["outputs"]
    assert relu["next"] == [{"node": linear["node"], "input": 0}]
    assert relu["drops"] == linear["outputs"]
    value = graph["values"][relu["outputs"][0]]
    assert (value["shape"], value["dtype"], value["device"]) == ([3, 16], "float32", "cuda")
    assert graph["storages"][value["storage"]]["bytes"] == 3 * 16 * 4
    transposed = operators["aten.t.default"]["outputs"][0]
    assert graph["values"][transposed]["storage"] == graph["values"][by_name["2.weight"]]["storage"]


def test_a_trace_repeats_itself(source):
    first, second = (json.dumps(traced(source, "build")) for _ in range(2))
    assert first == second


def test_saved_bytes_are_those_of_the_oracle():
    config = memory_oracle.read_config(CONFIGS / "llama.json")
    options = memory_oracle.Options(attention="sdpa", steps=1)

    def build():
        model = memory_oracle.make_model(config, options, "cpu")
        return model.train(), memory_oracle.make_inputs(config, options, "cpu")

    graph = trace_module.trace(build)
    weights = {graph["values"][p["value"]]["storage"] for p in graph["parameters"]}
    saved = {graph["values"][v]["storage"] for o in graph["operators"] for v in o.get("saves", [])}
    expected = memory_oracle.run_oracle(config, options)
    on_device = sum(graph["storages"][s]["bytes"] for s in saved - weights)
    assert on_device == expected["saved_for_backward_bytes"]


@pytest.mark.parametrize("name, message", [
    ("no_loss", "gives no loss"), ("depends_on_data", "depends on data"),
    ("wrong", "has to return"), ("absent", "no function 'absent'")])
def test_refusals_say_what_to_change(source, name, message, capsys):
    assert trace_module.main([f"{source}:{name}", "--out", str(source) + ".json"]) == 3
    assert message in capsys.readouterr().err


def test_a_file_that_is_not_there(tmp_path, capsys):
    assert trace_module.main([str(tmp_path / "none.py") + ":build"]) == 3
    assert "no such file" in capsys.readouterr().err


def test_without_gradients_nothing_is_saved(source):
    graph = traced(source, "no_loss", train=False)
    assert not any("node" in o for o in graph["operators"])
