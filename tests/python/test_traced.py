"""Modules that Headroom has no family for: the step from a traced graph against eager PyTorch.

Each module runs three ways: traced to headroom.graph/1, run as a symbolic step by the step_dump
tool, and held against what eager PyTorch allocates (the oracle), byte for byte.
"""

import json
import os
import subprocess
from unittest import mock

import pytest
import torch

from conftest import REPO
from families import CONFIGS
from headroom import memory_oracle, trace_compare, trace_module

torch.autograd.set_multithreading_enabled(False)

EXAMPLE = REPO / "docs" / "examples" / "traced" / "train.py"


def step_dump():
    named = os.environ.get("HEADROOM_STEP_DUMP")
    found = [named] if named else sorted(REPO.glob("build/*/tests/headroom_step_dump"),
                                         key=os.path.getmtime)
    if not found:
        pytest.skip("headroom_step_dump is not built; set HEADROOM_STEP_DUMP")
    return str(found[-1])


def ours(graph, tmp_path, **over):
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(graph), encoding="utf-8")
    words = {"graph": 1, "steps": 1} | over
    done = subprocess.run([step_dump(), str(path), *(f"{k}={v}" for k, v in words.items())],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class _Built(memory_oracle.TrainingRun):
    """The oracle's run of a user's build() instead of a transformers model."""

    def __init__(self, build, options):
        self._loss_fn = None
        self._build = build
        with mock.patch.object(memory_oracle, "make_model", self._make):
            super().__init__(mock.Mock(model_type="traced"), options)

    def _make(self, _config, _options, device):
        made = self._build()
        dtype = getattr(torch, self.options.dtype)
        self._inputs = [(tuple(i.shape), dtype if i.is_floating_point() else i.dtype)
                        for i in made[1]]
        self._loss_fn = made[2]
        return made[0].to(device, dtype)

    def inputs(self, _config, _options, device):
        return {"inputs": [torch.empty(s, dtype=d).to(device) for s, d in self._inputs]}

    def forward(self, batch):
        with self._autocast():
            return self._loss_fn(self.model(*batch["inputs"]))

    def step(self):
        with mock.patch.object(memory_oracle, "make_inputs", self.inputs):
            return super().step()

    def measure_saved(self):
        with mock.patch.object(memory_oracle, "make_inputs", self.inputs):
            return super().measure_saved()


def oracle(build, **over):
    options = memory_oracle.Options(**{"dtype": "float32", "steps": 1, **over})
    with mock.patch.object(memory_oracle, "TrainingRun",
                           lambda _config, chosen, _mesh: _Built(build, chosen)):
        return memory_oracle.run_oracle(mock.Mock(model_type="traced"), options)


@pytest.mark.parametrize("name", ["mixer", "conv_attention", "encoder"])
def test_the_step_is_eager_pytorchs(name, tmp_path):
    build = trace_module.load_builder(f"{EXAMPLE}:{name}")
    actual = ours(trace_module.trace(build), tmp_path)
    outcome = trace_compare.compare(oracle(build), actual, step=0)
    assert outcome.equal, outcome.report


@pytest.mark.parametrize("name", ["mixer", "encoder"])
@pytest.mark.parametrize("settings", [{"dtype": "bfloat16"}, {"autocast": "bfloat16"}])
def test_types_are_applied_to_the_module(name, settings, tmp_path):
    build = trace_module.load_builder(f"{EXAMPLE}:{name}")
    graph = trace_module.trace(build, settings=trace_module.Settings(**settings))
    outcome = trace_compare.compare(oracle(build, **settings), ours(graph, tmp_path), step=0)
    assert outcome.equal, outcome.report


def family(name, **over):
    """The oracle's trace of a family's model, and a graph of it from the tracer."""
    config = memory_oracle.read_config(CONFIGS / f"{name}.json")
    options = memory_oracle.Options(**{"steps": 1, **over})

    def build():
        model = memory_oracle.make_model(config, options, "cpu")
        if options.lora_rank:
            model = memory_oracle.add_adapter(model, options)
        return model.train(), memory_oracle.make_inputs(config, options, "cpu")

    settings = trace_module.Settings(autocast=options.autocast or None)
    graph = trace_module.trace(build, settings=settings)
    return memory_oracle.run_oracle(config, options), graph


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_family_traced_is_the_family(name, attention, tmp_path):
    expected, graph = family(name, attention=attention)
    outcome = trace_compare.compare(expected, ours(graph, tmp_path, dtype="bfloat16"), step=0)
    assert outcome.equal, outcome.report


@pytest.mark.parametrize("over, words", [
    ({"dtype": "float32", "autocast": "bfloat16"}, {}),
    ({"accumulation": 2, "clip": 1.0}, {"accumulation": 2, "clip": 1}),
    ({"lora_rank": 4, "lora_targets": ("q_proj", "v_proj")}, {})])
def test_settings_of_a_traced_family(over, words, tmp_path):
    expected, graph = family("llama", attention="sdpa", **over)
    actual = ours(graph, tmp_path, **{"dtype": over.get("dtype", "bfloat16")} | words)
    outcome = trace_compare.compare(expected, actual, step=0)
    assert outcome.equal, outcome.report


@pytest.mark.parametrize("kind", ["reentrant", "non_reentrant"])
def test_layers_of_a_trace_can_be_checkpointed(kind, tmp_path):
    """All but what a layer is passed and does not use: the position ids, 128 bytes rounded."""
    expected, _ = family("llama", attention="sdpa", checkpointing=kind)
    _, graph = family("llama", attention="sdpa")
    actual = ours(graph, tmp_path, dtype="bfloat16", checkpointing=kind)
    outcome = trace_compare.compare(expected, actual, step=0)
    assert abs(outcome.actual_peak - outcome.expected_peak) <= 128, outcome.report
