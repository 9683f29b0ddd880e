"""A tensor-parallel rank against PyTorch: transformers' own plans, applied to fake tensors in a group of
processes that is not there, block by block; and against two real processes joined by gloo.
"""

import functools
import json

import pytest
import step_dump
import transformers

from headroom import memory_oracle, trace_compare

# Changes to configs/FAMILY.json, so that heads come out even.
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100}
CASES = {
    **{family: {"family": family, "changes": HEADS}
       for family in ("llama", "qwen3", "phi3", "llama_tied", "gemma2", "olmo2")},
    "gpt_neox": {"family": "gpt_neox", "changes": {"num_attention_heads": 4, "hidden_size": 64}},
    "phi": {"family": "phi", "changes": {**HEADS, "hidden_size": 64}},
    "odd-sizes": {"family": "llama", "changes": {**HEADS, "intermediate_size": 87, "vocab_size": 101}},
    "four-ranks-sdpa": {"family": "llama", "ranks": 4, "attention": "sdpa",
                        "changes": {"num_attention_heads": 8, "num_key_value_heads": 4, "hidden_size": 64}},
    "non_reentrant": {"family": "llama", "changes": HEADS, "checkpointing": "non_reentrant"},
    "reentrant": {"family": "llama", "changes": HEADS, "checkpointing": "reentrant"},
    # Matrices of queries, keys and values have adapters whose second matrix is divided, that of answers one whose first.
    "lora": {"family": "llama", "changes": HEADS, "lora": {"lora_targets": ["q_proj", "v_proj"]}},
    "lora-everywhere": {"family": "llama", "changes": HEADS, "lora": {"lora_targets": ["all-linear"]}},
    "lora-dropout": {"family": "qwen3", "changes": HEADS, "lora": {"lora_targets": ["q_proj", "o_proj"], "lora_dropout": 0.1}},
    "lora-reentrant": {"family": "llama", "changes": HEADS, "checkpointing": "reentrant",
                       "lora": {"lora_targets": ["q_proj", "v_proj", "down_proj"]}},
    "lora-autocast": {"family": "llama", "changes": HEADS, "types": {"dtype": "float32", "autocast": "bfloat16"},
                      "lora": {"lora_targets": ["q_proj", "o_proj"]}},
    "autocast": {"family": "llama", "changes": HEADS, "types": {"dtype": "float32", "autocast": "bfloat16"}},
}
# torchtitan's plan on transformers' modules. Masks are left out: they are made of whole sequences.
SEQUENCE = {
    **{f"sequence-{family}": {"family": family, "changes": HEADS} for family in ("llama", "qwen2", "qwen3", "mistral")},
    "sequence-one-batch": {"family": "llama", "changes": HEADS, "batch": 1},
    "sequence-four-ranks": {"family": "llama", "ranks": 4, "changes": {"vocab_size": 100, "num_attention_heads": 8, "num_key_value_heads": 4}},
    "sequence-checkpointing": {"family": "llama", "changes": HEADS, "checkpointing": "non_reentrant"},
    "sequence-selective": {"family": "llama", "changes": HEADS, "checkpointing": "selective"},
}
for case in SEQUENCE.values():
    case |= {"attention": "sdpa", "sequence": True, "changes": {**case["changes"], "hidden_size": 64}}
CASES |= SEQUENCE
FULL = {family: {"family": family, "changes": HEADS}
        for family in ("qwen2", "mistral", "starcoder2", "granite", "glm", "glm4", "gemma", "gemma3_text", "arcee",
                       "cohere", "cohere2", "ernie4_5", "exaone4", "olmo", "olmo3", "seed_oss", "smollm3")}
FULL["helium"] = {"family": "helium", "changes": {**HEADS, "head_dim": 12}}
# Only what lives at the most and at the end is held: scaled embeddings are scaled before they are let go of.
PEAKS_ALONE = {"gemma", "gemma2", "gemma3_text"}
DIVIDES_EMBEDDING = tuple(int(part) for part in transformers.__version__.split(".")[:2]) >= (5, 21)
WORDS = {"batch": 2, "seq": 16, "steps": 2, "implementation": "loop"}


def test_the_plans_are_those_of_transformers():
    """A rule that we lack would leave a module whole that transformers divides, and the other way round."""
    from transformers import CONFIG_MAPPING
    plans = step_dump.run(step_dump.CONFIGS / "llama.json", tensor_plans=1)
    for model_type, plan in plans.items():
        own = CONFIG_MAPPING[model_type].base_model_tp_plan
        assert plan["is_transformers"] == bool(own), model_type
        if own:
            assert plan["rules"] == {name.partition("*.")[2]: style for name, style in own.items()}, model_type


def written(case, tmp_path):
    values = json.loads((step_dump.CONFIGS / f"{case['family']}.json").read_text(encoding="utf-8"))
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**values, **case["changes"]}), encoding="utf-8")
    return path


def steady_blocks(trace):
    events = [event for event in trace["events"] if event["step"] == 2]
    before = [event["live"] for event in trace["events"] if event["step"] < 2]
    return trace_compare.flatten(events, before[-1])


def before_optimizer(blocks):
    """DTensor's optimizer cuts the embedding's whole gradient by a copy for each use, which we leave out: they
    are at no time more than what the update itself makes."""
    return [block for block in blocks if not block.label.startswith("optimizer")]


def cases():
    for name in CASES:
        yield pytest.param(name, marks=[])
    for name in FULL:
        yield pytest.param(name, marks=[pytest.mark.full])


@pytest.mark.parametrize("name", list(cases()))
def test_a_rank_makes_and_lets_go_of_what_pytorch_does(name, tmp_path):
    """The second step: in the first, DTensor tries operators out on tensors of its own."""
    case = {**CASES, **FULL}[name]
    path = written(case, tmp_path)
    settings = {**WORDS, "attention": case.get("attention", "eager"), "checkpointing": case.get("checkpointing", "none"),
                "tensor_ranks": case.get("ranks", 2), "batch": case.get("batch", 2),
                "sequence_parallel": int(case.get("sequence", False)), **case.get("types", {"dtype": "bfloat16"})}
    lora = {"lora_rank": 4, **case["lora"]} if "lora" in case else {}
    oracle = memory_oracle.run_oracle(memory_oracle.read_config(path), memory_oracle.Options(**settings, **lora))
    if lora:
        settings |= lora | {"lora_targets": ",".join(lora["lora_targets"])}
    ours = step_dump.run(path, **settings, whole_embedding=int(not DIVIDES_EMBEDDING and not case.get("sequence")))
    expected = trace_compare.flatten(trace_compare.events_of(oracle, 1), trace_compare.start_bytes(oracle, 1))
    actual = steady_blocks(ours)
    outcome = trace_compare.compare_blocks(before_optimizer(expected), before_optimizer(actual))
    # Earlier transformers' rotary embedding lets go of its frequencies a moment later.
    assert outcome.equal or name in PEAKS_ALONE or not DIVIDES_EMBEDDING, outcome.report
    assert max(block.live for block in actual) == max(block.live for block in expected)
    assert actual[-1].live == expected[-1].live
