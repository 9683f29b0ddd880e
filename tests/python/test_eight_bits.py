"""LoRA beside weights of eight bits (LLM.int8) against bitsandbytes' own code on fake tensors, and peft's around it.

Every allocation and release of two steps, the first of which casts biases for good, and those of making the weights.
"""

import contextlib
import itertools

import matrix
import pytest
import step_dump
from test_exactness import blocks_of_step
from test_transformations import words_of

from headroom import memory_oracle, trace_compare

# name: the family, the oracle's options, and whether peft prepared the model.
CASES = {
    "plain": ("llama", {}, False),
    "prepared": ("llama", {}, True),
    "dropout": ("llama", {"lora_dropout": 0.1}, True),
    "all-linear": ("llama", {"lora_targets": ("all-linear",)}, False),
    "biases": ("llama_tied", {"lora_targets": ("all-linear",)}, False),
    "biases-prepared": ("llama_tied", {"lora_targets": ("all-linear",)}, True),
    "conv1d": ("gpt2", {}, False),
    "images": ("gemma3", {"lora_targets": ("q_proj", "fc1")}, True),  # of a tower that is never called
    "qwen3-half": ("qwen3", {"dtype": "float16"}, False),
    "opt-prepared": ("opt", {}, True),
    "autocast": ("llama", {"autocast": "bfloat16"}, False),
    "autocast-prepared": ("llama", {"autocast": "bfloat16"}, True),
    "autocast-biases": ("llama_tied", {"autocast": "bfloat16", "lora_targets": ("all-linear",)}, True),
    "autocast-half": ("llama", {"autocast": "float16", "dtype": "float16"}, False),
    "accumulation": ("llama", {"accumulation": 2, "autocast": "bfloat16"}, True),
    "batch-1": ("llama", {"batch": 1}, False),
    "wide-input": ("gpt_neox", {}, True),
}


@contextlib.contextmanager
def loaded_in_8_bits(monkeypatch, is_prepared):
    import eight_bits

    made = memory_oracle.make_model

    def make_model(config, options, device):
        import torch

        with torch.no_grad():
            model = eight_bits.quantize(made(config, options, device))
            return eight_bits.prepare(model) if is_prepared else model

    monkeypatch.setattr(memory_oracle, "make_model", make_model)
    with eight_bits.running():
        yield


def test_a_weight_is_made_of_a_copy_in_float16():
    """Of one that is on the device already: what it is copied from goes once it is made."""
    pytest.importorskip("bitsandbytes")
    import eight_bits
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from headroom.allocation_recorder import AllocationRecorder

    recorder = AllocationRecorder()
    with eight_bits.running(), FakeTensorMode(), torch.no_grad():
        value = torch.empty(320, 128, dtype=torch.bfloat16, device="cuda:0")
        with recorder:
            weight = eight_bits.quantized(value)
    made = [bytes_ for event in recorder.events for bytes_ in event["allocs"] if bytes_]
    assert made == [2 * 320 * 128, 4 * 320, 320 * 128]
    assert recorder.live_bytes == weight.nbytes + weight.SCB.nbytes


@pytest.mark.parametrize(("case", "attention", "checkpointing"), matrix.in_turns(
    itertools.product(CASES, ("eager", "sdpa"), ("none", "reentrant", "non_reentrant")),
    lambda i, _: (i + i // 6) % 2 == 0))
def test_allocations_are_those_of_bitsandbytes(case, attention, checkpointing, monkeypatch):
    pytest.importorskip("bitsandbytes")
    family, settings, is_prepared = CASES[case]
    config = step_dump.CONFIGS / f"{family}.json"
    options = memory_oracle.Options(attention=attention, checkpointing=checkpointing, steps=2, **{
        "lora_rank": 4, **settings})
    with loaded_in_8_bits(monkeypatch, is_prepared):
        expected = memory_oracle.run_oracle(memory_oracle.read_config(config), options, count_saved=False)
    words = dict(word.split("=", 1) for word in words_of(options, {"quantize": "int8", "float32_rest": int(is_prepared)}))
    ours = step_dump.run(config, **{**words, "steps": 2})
    for step in range(2):
        theirs = trace_compare.flatten(trace_compare.events_of(expected, step), trace_compare.start_bytes(expected, step))
        outcome = trace_compare.compare_blocks(theirs, blocks_of_step(ours, step + 1))
        assert outcome.equal, f"step {step}: {outcome.report}"
