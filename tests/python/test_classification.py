"""Models that classify sequences against PyTorch: every allocation and release of two training steps, in order.

transformers' ...ForSequenceClassification, with three labels; peft's task SEQ_CLS trains a copy of the head beside
adapters.
"""

import pytest
import step_dump
from test_exactness import BATCH, EAGER_ONLY, FAMILIES, QUICK, SEQUENCE, STEPS, assert_equal

from headroom import memory_oracle

LABELS = 3
# transformers has no such class, or one of another kind (t5); families of several configs are tried with one.
WITHOUT = {"codegen", "glm4_moe", "glm_moe_dsa", "glm_moe_dsa_shared", "granite", "granitemoe", "kimi_k2", "minimax_m2", "powerlm",
           "qwen3_5_moe", "t5", "t5_gated", "vit"}
VARIANTS = {"falcon_rw", "gpt_neox_serial", "llama_tied", "phi_normed", "qwen3_next_dense", "stablelm_parallel"}
CLASSIFIERS = [family for family in FAMILIES if family not in WITHOUT | VARIANTS]
ALWAYS = {"bert", "roberta", "gpt2", "llama", "opt", "qwen3_moe"}


def cases():
    for i, family in enumerate(CLASSIFIERS):
        attention, checkpointing = ("eager", "non_reentrant") if family in EAGER_ONLY else QUICK[i % len(QUICK)]
        marks = [] if family in ALWAYS else [pytest.mark.full]
        yield pytest.param(family, attention, checkpointing, marks=marks)


def expected(family, **settings):
    config = memory_oracle.read_config(step_dump.CONFIGS / f"{family}.json")
    config.num_labels = LABELS
    config.pad_token_id = 0
    return memory_oracle.run_oracle(config, memory_oracle.Options(
        batch=BATCH, seq=SEQUENCE, steps=STEPS, dtype="bfloat16", head="sequence_classification", **settings))


def ours(family, **settings):
    return step_dump.run(step_dump.CONFIGS / f"{family}.json", batch=BATCH, seq=SEQUENCE, steps=STEPS, dtype="bfloat16",
                         classes=LABELS, **settings)


@pytest.mark.parametrize(("family", "attention", "checkpointing"), list(cases()))
def test_a_classifier_takes_what_pytorch_does(family, attention, checkpointing):
    settings = {"attention": attention, "checkpointing": checkpointing}
    assert_equal(expected(family, **settings), ours(family, **settings))


@pytest.mark.parametrize(("family", "targets"), [("bert", ["query", "value"]), ("llama", ["q_proj", "v_proj"])])
def test_its_head_is_trained_beside_adapters(family, targets):
    """But for the frozen head that peft keeps beside its copy, a weight and a bias that are not modelled: of the oracle
    it is there from the beginning, and the copy, which is made aside, from its first use."""
    settings = {"attention": "sdpa", "checkpointing": "none", "lora_rank": 4}
    frozen = 2 * LABELS * (48 + (family == "bert"))
    assert_equal(expected(family, lora_targets=targets, **settings),
                 ours(family, lora_targets=",".join(targets), **settings), frozen)
