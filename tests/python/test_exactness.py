"""The symbolic step against PyTorch: every allocation and release of two training steps, in order.

Each case runs the oracle (real PyTorch on fake tensors) and the symbolic step on a tiny model and
holds one against the other byte by byte. By default a family is tried with three settings; all
combinations are marked `full` (./test --all). The first step makes the optimizer's states, the second
is the steady one. Where equality is impossible, DIFFERENCES says where, why, and how far apart.
"""

import functools
import json
from itertools import product

import pytest
import step_dump

from headroom import memory_oracle, trace_compare

# Names of files under configs/. Dropouts are on in gpt2, opt, gpt_bigcode and biogpt.
FAMILIES = [
    "arcee", "bert", "biogpt", "bloom", "camembert", "codegen", "cohere", "cohere2",
    "cohere_normed", "deberta_v2", "deberta_v2_positions", "deepseek_v2", "deepseek_v3",
    "deepseek_v32", "dots1", "dots1_sliding", "distilbert", "electra", "electra_wide", "ernie4_5",
    "ernie4_5_moe", "ernie4_5_moe_alone", "exaone4", "falcon", "falcon_new", "falcon_rw", "gemma",
    "gemma2", "gemma3", "gemma3_text", "gemma4", "gemma4_images", "gemma4_text", "gemma4_text_mixture", "gemma4_text_shared", "glm", "glm4", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa",
    "glm_moe_dsa_shared", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gpt_neox_serial",
    "gpt_oss", "gptj", "granite", "granitemoe", "helium", "hunyuan_v1_dense", "kimi_k2", "llama",
    "llama4", "llama4_text", "llama_tied", "minimax", "minimax_m2", "ministral3", "mistral", "mistral3", "mixtral",
    "modernbert", "modernbert_biased", "mpnet", "olmo", "olmo2", "olmo3", "olmo_clipped", "olmoe", "opt", "opt_post_norm",
    "phi", "phi_normed", "phi3", "phimoe", "phimoe_jittered", "powerlm", "qwen2", "qwen2_5_vl",
    "qwen2_moe", "qwen2_vl", "qwen3", "qwen3_5", "qwen3_5_moe", "qwen3_moe", "qwen3_next",
    "qwen3_next_dense", "qwen3_vl", "roberta", "seed_oss", "smollm3", "smollm3_windowed",
    "stablelm", "stablelm_parallel", "starcoder2", "t5", "t5_gated", "vit",
]

# Families for which transformers has no SDPA implementation.
EAGER_ONLY = {"bloom", "codegen", "deberta_v2", "deberta_v2_positions", "gemma2", "gpt_neo", "gpt_oss", "gptj", "mpnet",
              "gemma4"}  # whose audio tower alone has none: a whole model's word for it is refused

# (family, attention, checkpointing): the largest difference of live bytes allowed, and why.
# Layers that take over keys and values have them in a dict that every checkpoint holds; a layer that makes them again puts
# them there again, and with them what they were made from, to the end of backward.
_SHARED = "the dict of shared keys and values holds what its last writers were made from"
DIFFERENCES = {("gemma4_text_shared", "eager", "non_reentrant"): (130_000, _SHARED),
               ("gemma4_text_shared", "sdpa", "non_reentrant"): (130_000, _SHARED),
               ("gemma4", "eager", "non_reentrant"): (130_000, _SHARED),
               **{("gemma4_images", attention, "reentrant"): (256, "tokens' ids stay a moment longer, by whom was not found")
                  for attention in ("eager", "sdpa")}}
# Not held against PyTorch, and refused: it runs them, and no gradient comes back through what is taken over.
NO_GRADIENT = {("gemma4_text_shared", "reentrant"), ("gemma4", "reentrant")}

# (family, checkpointing): what PyTorch or transformers say, and what we do. DeBERTa's layers share embeddings that went
# through a norm, of which the first layer's backward frees what it kept.
REFUSED = {
    ("deberta_v2", "reentrant"): ("through the graph a second time", "which PyTorch refuses"),
    ("mpnet", "non_reentrant"): ("does not support activation checkpointing", "no checkpointing for mpnet"),
    ("mpnet", "reentrant"): ("does not support activation checkpointing", "no checkpointing for mpnet"),
}

ATTENTIONS = ("eager", "sdpa")
CHECKPOINTING = ("none", "non_reentrant", "reentrant")
# Of a family one of these, in turns; the others in ./test --all.
QUICK = [("sdpa", "none"), ("eager", "non_reentrant")]
BATCH, SEQUENCE, STEPS = 2, 16, 2

# Linear attention cuts the sequence into chunks (of 64 tokens; of 8 in minimax.json): one that is
# full, and several of which the last is not.
CHUNKED = [("qwen3_next", 64), ("qwen3_next", 150), ("qwen3_5", 150), ("minimax", 8),
           ("minimax", 20)]


def cases():
    for turn, family in enumerate(FAMILIES):
        possible = [(attention, checkpointing) for attention, checkpointing in product(ATTENTIONS, CHECKPOINTING)
                    if not (attention == "sdpa" and family in EAGER_ONLY) and (family, checkpointing) not in REFUSED.keys() | NO_GRADIENT]
        quick = QUICK[1 if family in EAGER_ONLY else turn % len(QUICK)]
        for setting in possible:
            marks = [] if setting == (quick if quick in possible else possible[0]) else [pytest.mark.full]
            yield pytest.param(family, *setting, marks=marks)


@functools.lru_cache(maxsize=1)
def expected(family, attention, checkpointing, sequence=SEQUENCE, vocabulary=None):
    config = memory_oracle.read_config(step_dump.CONFIGS / f"{family}.json")
    if vocabulary:
        config.vocab_size = vocabulary
    options = memory_oracle.Options(
        batch=BATCH, seq=sequence, steps=STEPS, dtype="bfloat16", attention=attention,
        checkpointing=checkpointing, head=memory_oracle.head_of(config))
    return memory_oracle.run_oracle(config, options, count_saved=(family, attention, checkpointing) not in DIFFERENCES)


def blocks_of_step(trace, step):
    """The blocks of one step (from 1) of the symbolic trace."""
    events = [event for event in trace["events"] if event["step"] == step]
    before = [event["live"] for event in trace["events"] if event["step"] < step]
    return trace_compare.flatten(events, before[-1] if before else trace["start_bytes"])


def assert_equal(oracle, ours, bound=0):
    """Both steps, block by block; or, where a difference is allowed, their peaks."""
    for step in range(1, STEPS + 1):
        one = trace_compare.flatten(trace_compare.events_of(oracle, step - 1),
                                    trace_compare.start_bytes(oracle, step - 1))
        two = blocks_of_step(ours, step)
        if bound:
            peaks = [max(block.live for block in blocks) for blocks in (one, two)]
            assert abs(peaks[0] - peaks[1]) <= bound
            continue
        outcome = trace_compare.compare_blocks(one, two)
        assert outcome.equal, f"step {step}: {outcome.report}"
    if not bound:
        assert ours["saved_for_backward_bytes"] == oracle["saved_for_backward_bytes"]


@pytest.mark.parametrize(("family", "attention", "checkpointing"), list(cases()))
def test_step_equals_pytorch(family, attention, checkpointing):
    oracle = expected(family, attention, checkpointing)
    ours = step_dump.run(step_dump.CONFIGS / f"{family}.json", batch=BATCH, seq=SEQUENCE,
                         steps=STEPS, dtype="bfloat16", attention=attention,
                         checkpointing=checkpointing)
    bound, _reason = DIFFERENCES.get((family, attention, checkpointing), (0, ""))
    assert_equal(oracle, ours, bound)


@pytest.mark.parametrize(("family", "checkpointing"), REFUSED)
def test_what_pytorch_refuses_is_refused(family, checkpointing):
    theirs, own = REFUSED[family, checkpointing]
    with pytest.raises((RuntimeError, ValueError), match=theirs):
        expected(family, "eager", checkpointing)
    with pytest.raises(AssertionError, match=own):
        step_dump.run(step_dump.CONFIGS / f"{family}.json", batch=BATCH, seq=SEQUENCE, attention="eager",
                      checkpointing=checkpointing)


@pytest.mark.parametrize(("family", "sequence"), CHUNKED)
def test_step_in_chunks_equals_pytorch(family, sequence):
    oracle = expected(family, "sdpa", "none", sequence)
    ours = step_dump.run(step_dump.CONFIGS / f"{family}.json", batch=BATCH, seq=sequence,
                         steps=STEPS, dtype="bfloat16", attention="sdpa", checkpointing="none")
    assert_equal(oracle, ours)


def every_nth_cases():
    families = ("gpt2", "llama", "mixtral", "gemma3_text", "biogpt", "opt")
    for family, every, layers in product(families, (1, 2, 3), (2, 3, 7)):
        marks = [] if (every, layers) == (2, 7) else [pytest.mark.full]
        yield pytest.param(family, every, layers, marks=marks)


@pytest.mark.parametrize(("family", "every", "layers"), list(every_nth_cases()))
def test_step_with_every_nth_layer_checkpointed_equals_pytorch(family, every, layers, tmp_path):
    """Seven layers are enough to be folded where their pattern allows it."""
    written = json.loads((step_dump.CONFIGS / f"{family}.json").read_text())
    for name in ("num_hidden_layers", "n_layer"):
        if name in written:
            written[name] = layers
    written.pop("layer_types", None)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(written))
    config = memory_oracle.read_config(file)
    options = memory_oracle.Options(
        batch=BATCH, seq=SEQUENCE, steps=STEPS, dtype="bfloat16", attention="eager",
        checkpointing=f"every-{every}", head=memory_oracle.head_of(config))
    ours = step_dump.run(file, batch=BATCH, seq=SEQUENCE, steps=STEPS, dtype="bfloat16",
                         attention="eager", checkpointing=f"every-{every}")
    assert_equal(memory_oracle.run_oracle(config, options), ours)


@pytest.mark.parametrize("vocabulary", [32000, 32001, 49158, 256000])
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_step_with_another_vocabulary_equals_pytorch(family, vocabulary):
    """As after a tokenizer has added its tokens: tied in gpt2, a head of its own in llama."""
    oracle = expected(family, "sdpa", "none", vocabulary=vocabulary)
    ours = step_dump.run(step_dump.CONFIGS / f"{family}.json", batch=BATCH, seq=SEQUENCE,
                         steps=STEPS, dtype="bfloat16", attention="sdpa", checkpointing="none",
                         vocab=vocabulary)
    assert_equal(oracle, ours)
