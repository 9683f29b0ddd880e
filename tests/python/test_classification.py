"""Models that classify sequences against PyTorch: every allocation and release of two training steps, in order.

transformers' ...ForSequenceClassification, with three labels; peft's task SEQ_CLS trains a copy of the head beside
adapters.
"""

import json
import os
import subprocess

import pytest
import step_dump
from test_exactness import BATCH, EAGER_ONLY, FAMILIES, QUICK, REFUSED, SEQUENCE, STEPS, assert_equal

from headroom import memory_oracle

LABELS = 3
# transformers has no such class, or one of another kind (t5); families of several configs are tried with one.
WITHOUT = {"codegen", "cohere", "cohere2", "cohere_normed", "deepseek_v32", "dots1", "dots1_sliding", "ernie4_5",
           "ernie4_5_moe", "ernie4_5_moe_alone", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa", "glm_moe_dsa_shared",
           "granite", "granitemoe", "kimi_k2", "llama4", "llama4_text", "minimax_m2", "mistral3", "olmoe", "powerlm",
           "qwen2_5_vl", "qwen2_vl", "qwen3_5_moe", "qwen3_vl", "t5", "t5_gated", "vit"}
VARIANTS = {"olmo_clipped", "deberta_v2_positions", "electra_wide", "smollm3_windowed", "falcon_rw", "gpt_neox_serial", "llama_tied", "phi_normed", "phimoe_jittered", "qwen3_next_dense", "stablelm_parallel"}
CLASSIFIERS = [family for family in FAMILIES if family not in WITHOUT | VARIANTS]
ALWAYS = {"bert", "deberta_v2", "distilbert", "modernbert", "roberta", "gpt2", "llama", "opt", "qwen3_moe"}


def cases():
    for i, family in enumerate(CLASSIFIERS):
        attention, checkpointing = ("eager", "non_reentrant") if family in EAGER_ONLY else QUICK[i % len(QUICK)]
        if (family, checkpointing) in REFUSED:
            checkpointing = "none"
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


TARGETS = {"bert": ["query", "value"], "deberta_v2": ["query_proj", "value_proj"], "distilbert": ["q_lin", "v_lin"],
           "llama": ["q_proj", "v_proj"], "roberta": ["query", "value"]}


@pytest.mark.parametrize(("family", "targets"), TARGETS.items())
def test_its_head_is_trained_beside_adapters(family, targets):
    """But for the copy of the head, which the oracle sees from its first use on, since it is made aside."""
    attention = "eager" if family in EAGER_ONLY else "sdpa"
    settings = {"attention": attention, "checkpointing": "none", "lora_rank": 4}
    copies = {"bert": LABELS * 49, "deberta_v2": LABELS * 49, "distilbert": LABELS * 49 + 48 * 49, "llama": LABELS * 48,
              "roberta": LABELS * 49 + 48 * 49}
    assert_equal(expected(family, lora_targets=targets, **settings),
                 ours(family, lora_targets=",".join(targets), **settings), 2 * copies[family])


@pytest.mark.parametrize("family", TARGETS)
def test_as_many_parameters_as_peft_trains_and_keeps(family):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForSequenceClassification
    config = memory_oracle.read_config(step_dump.CONFIGS / f"{family}.json")
    config.num_labels = LABELS
    targets = TARGETS[family]
    model = get_peft_model(AutoModelForSequenceClassification.from_config(config),
                           LoraConfig(r=4, target_modules=targets, task_type="SEQ_CLS"))
    done = subprocess.run(
        [os.environ["HEADROOM_BINARY"], "fit", str(step_dump.CONFIGS / f"{family}.json"), "--task", "sequence-classification",
         "--labels", str(LABELS), "--method", "lora", "--lora-rank", "4", "--lora-targets", ",".join(targets), "--seq", "16",
         "--device", "a100-sxm-40gb", "--search", "false", "--json"], capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout)
    assert answer["trainable_parameters"] == sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert answer["parameters"] == sum(p.numel() for p in model.parameters())
