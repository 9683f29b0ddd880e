"""Optimizers of bitsandbytes, as transformers' Trainer makes them, against the library's own step on fake tensors.

Every allocation and release of two steps, the first of which makes the states, and what is in unified memory, whose
allocations, like all kernels, are stood in for.
"""

import json
import types

import pytest
import step_dump
from test_exactness import blocks_of_step
from test_transformations import words_of

from headroom import memory_oracle, trace_compare

# The Trainer's names, and step_dump's words for what they keep.
OPTIMIZERS = {
    "adamw_bnb_8bit": "1,1,8",
    "adamw_8bit": "1,1,8",
    "paged_adamw_32bit": "1,1,32,paged",
    "paged_adamw_8bit": "1,1,8,paged",
    "lion_32bit": "1,0,32",
    "lion_8bit": "1,0,8",
    "paged_lion_32bit": "1,0,32,paged",
    "paged_lion_8bit": "1,0,8,paged",
    "ademamix": "2,1,32",
    "ademamix_8bit": "2,1,8",
    "paged_ademamix_32bit": "2,1,32,paged",
    "paged_ademamix_8bit": "2,1,8,paged",
    "rmsprop_bnb": "1,0,32",
    "rmsprop_bnb_32bit": "1,0,32",
    "rmsprop_bnb_8bit": "1,0,8",
}
# So that some parameters are below 4096 elements, some below 100,000 and some above.
SIZES = {"vocab_size": 2100, "hidden_size": 96, "intermediate_size": 1100, "num_attention_heads": 6,
         "num_key_value_heads": 3}


@pytest.fixture
def library(monkeypatch):
    """bitsandbytes with nothing launched; a list of the bytes that were asked of unified memory."""
    memory_oracle.import_torch()
    functional = pytest.importorskip("bitsandbytes.functional")
    import torch
    from bitsandbytes.optim import optimizer
    paged = []

    def get_paged(*shape, dtype, device):
        made = torch.empty(shape, dtype=dtype)
        paged.append(made.nbytes)
        return made

    monkeypatch.setattr(functional, "get_paged", get_paged)
    monkeypatch.setattr(functional, "create_dynamic_map", lambda signed=True: torch.empty(256))
    for name in ("fill", "prefetch_tensor", "optimizer_update_32bit", "optimizer_update_8bit_blockwise"):
        monkeypatch.setattr(functional, name, lambda *arguments, **named: None)
    monkeypatch.setattr(optimizer, "sync_gpu", lambda tensor: None)
    return paged


def made_by_transformers(name, parameters):
    from transformers import trainer_optimizer

    arguments = types.SimpleNamespace(optim=name, adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-8)
    context = trainer_optimizer.OptimizerContext(
        args=arguments, model=None, optimizer_kwargs={"lr": 1e-3}, optim_args={},
        adam_kwargs={"betas": (0.9, 0.999), "eps": 1e-8})
    kind, words = trainer_optimizer._get_bitsandbytes_optimizer(context)
    return kind(parameters, **words)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_states_are_those_of_the_library(name, dtype, library, tmp_path, monkeypatch):
    config = json.loads((step_dump.CONFIGS / "llama.json").read_text(encoding="utf-8")) | SIZES
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    monkeypatch.setattr(memory_oracle, "make_optimizer",
                        lambda parameters, options: made_by_transformers(name, parameters))
    options = memory_oracle.Options(attention="sdpa", steps=2, dtype=dtype)
    expected = memory_oracle.run_oracle(memory_oracle.read_config(path), options, count_saved=False)
    words = dict(word.split("=", 1) for word in words_of(options, {}))
    words["optimizer"] = f"bnb:{OPTIMIZERS[name]}"
    ours = step_dump.run(path, **{**words, "steps": 2})
    for step in range(2):
        theirs = trace_compare.flatten(trace_compare.events_of(expected, step), trace_compare.start_bytes(expected, step))
        outcome = trace_compare.compare_blocks(theirs, blocks_of_step(ours, step + 1))
        assert outcome.equal, outcome.report
    # One state is paged where the parameter has 100,000 elements; the bits say how wide.
    elements = [rows * columns for rows, columns in ((2100, 96), (2100, 96), *[(1100, 96)] * 6)]
    first, second, bits, *is_paged = OPTIMIZERS[name].split(",")
    wide = sum(elements) * (int(first) + int(second)) * int(bits) // 8
    assert sum(library) == (wide if is_paged else 0)


def test_every_name_of_the_trainer_is_known(library):
    from transformers.training_args import OptimizerNames

    of_library = ("bnb", "paged", "lion", "ademamix")
    names = {entry.value for entry in OptimizerNames if any(word in entry.value for word in of_library)}
    assert names | {"adamw_8bit"} == set(OPTIMIZERS)
