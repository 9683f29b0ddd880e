"""The symbolic step under transformations (LoRA, autocast, accumulation) against eager PyTorch.

Each case runs the oracle in this process and the step_dump program on the same configuration, and
wants every allocation and release to agree. HEADROOM_STEP_DUMP names the program; else the newest one
under build/ is taken, and without any the tests are skipped.
"""

import itertools
import json
import os
import subprocess
from pathlib import Path

import matrix
import pytest

from headroom import memory_oracle
from headroom.trace_compare import compare

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "tests" / "python" / "configs"

# name: the family, the oracle's options, and step_dump's words beyond those they share.
CASES = {
    "lora": ("llama", {"lora_rank": 4}, {}),
    "lora-dropout": ("llama", {"lora_rank": 4, "lora_dropout": 0.1}, {}),
    "lora-all-linear": ("llama", {"lora_rank": 8, "lora_targets": ("all-linear",)}, {}),
    "lora-named": ("llama", {"lora_rank": 8, "lora_targets": ("o_proj", "down_proj")}, {}),
    "lora-tied": ("llama_tied", {"lora_rank": 8}, {}),
    "lora-gpt_neox": ("gpt_neox", {"lora_rank": 4}, {}),
    "lora-phi": ("phi", {"lora_rank": 4}, {}),
    "lora-stablelm": ("stablelm", {"lora_rank": 4}, {}),
    "lora-falcon": ("falcon", {"lora_rank": 4}, {}),
    "lora-falcon_rw": ("falcon_rw", {"lora_rank": 4}, {}),
    "lora-gemma": ("gemma", {"lora_rank": 4}, {}),
    "lora-gemma3": ("gemma3_text", {"lora_rank": 4}, {}),
    # A tower of images is adapted, too, and never called.
    "lora-images": ("gemma3", {"lora_rank": 4, "lora_targets": ("q_proj", "v_proj")}, {}),
    "lora-images-everywhere": ("qwen2_5_vl", {"lora_rank": 4, "lora_targets": ("all-linear",),
                                              "head": "image_text"}, {}),
    "lora-biogpt": ("biogpt", {"lora_rank": 4, "lora_targets": ("q_proj", "v_proj")}, {}),
    "lora-bert": ("bert", {"lora_rank": 4, "head": "masked_lm"}, {}),
    "lora-t5": ("t5", {"lora_rank": 4, "head": "seq2seq_lm"}, {}),
    "cache": ("llama", {"use_cache": True}, {}),
    "cache-gpt2": ("gpt2", {"use_cache": True}, {}),
    "cache-qwen3": ("qwen3", {"use_cache": True}, {}),
    "dora": ("llama", {"lora_rank": 4, "dora": True}, {}),
    "dora-dropout": ("llama", {"lora_rank": 4, "dora": True, "lora_dropout": 0.1}, {}),
    "dora-biases": ("llama_tied", {"lora_rank": 4, "dora": True, "lora_targets": ("all-linear",)},
                    {}),
    "dora-float32": ("llama", {"lora_rank": 4, "dora": True, "dtype": "float32"}, {}),
    "dora-conv1d": ("gpt2", {"lora_rank": 4, "dora": True}, {}),
    "dora-conv1d-dropout": ("gpt2", {"lora_rank": 4, "dora": True, "lora_dropout": 0.1}, {}),
    "dora-autocast": (
        "llama", {"lora_rank": 4, "dora": True, "dtype": "float32", "autocast": "bfloat16"}, {}),
    "ia3": ("llama", {"ia3": True}, {}),
    "ia3-biases": ("llama_tied", {"ia3": True, "lora_targets": ("all-linear",)}, {}),
    "ia3-conv1d": ("gpt2", {"ia3": True}, {}),
    "ia3-named": ("qwen3", {"ia3": True, "lora_targets": ("q_proj", "up_proj")}, {}),
    "ia3-opt": ("opt", {"ia3": True}, {}),
    "ia3-float32": ("llama", {"ia3": True, "dtype": "float32"}, {}),
    "ia3-autocast": ("llama", {"ia3": True, "dtype": "float32", "autocast": "bfloat16"}, {}),
    "autocast": ("llama", {"dtype": "float32", "autocast": "bfloat16"}, {}),
    "autocast-half-weights": ("llama", {"dtype": "float16", "autocast": "float16"}, {}),
    "autocast-lora": ("llama", {"autocast": "bfloat16", "lora_rank": 4}, {}),
    "autocast-lora-float32": (
        "llama", {"dtype": "float32", "autocast": "bfloat16", "lora_rank": 4}, {}),
    "accumulation": ("llama", {"accumulation": 2}, {}),
    "sdpa-math": ("llama", {"sdpa": "math"}, {}),
    "sdpa-math-mask": ("opt", {"sdpa": "math"}, {}),
    "sdpa-math-float32": ("gpt2", {"sdpa": "math", "dtype": "float32"}, {}),
    "sdpa-efficient": ("gpt2", {"sdpa": "efficient", "dtype": "float32"}, {}),
    "sdpa-flash": ("gpt2", {"sdpa": "flash"}, {}),
    "sdpa-cudnn": ("llama", {"sdpa": "cudnn"}, {}),
    "step-in-backward": ("llama", {"optimizer_in_backward": True}, {}),
    "step-in-backward-tied": ("llama_tied", {"optimizer_in_backward": True}, {}),
    "step-in-backward-loop": (
        "gpt2", {"optimizer_in_backward": True, "implementation": "loop"}, {}),
    "step-in-backward-sgd": (
        "llama", {"optimizer_in_backward": True, "optimizer": "sgd:momentum"}, {}),
    "offload": ("llama", {"offload": "optimizer"}, {}),
    "offload-adam": ("llama", {"offload": "optimizer", "optimizer": "adam"}, {}),
    "freeze-embedding": ("llama", {"freeze": ("embed_tokens",)}, {}),
    "freeze-first-layer": ("gpt2", {"freeze": ("wte", "wpe", "h.0-0")}, {}),
    "freeze-parts": ("llama", {"freeze": ("self_attn", "mlp.up_proj")}, {}),
}


def step_dump():
    named = os.environ.get("HEADROOM_STEP_DUMP")
    if named:
        return named
    built = sorted(ROOT.glob("build/**/headroom_step_dump"), key=lambda path: path.stat().st_mtime)
    if not built:
        pytest.skip("no headroom_step_dump was built")
    return str(built[-1])


def run_oracle(config, options):
    """What is saved for backward is test_exactness.py's."""
    return memory_oracle.run_oracle(memory_oracle.read_config(config), options, count_saved=False)


def words_of(options, extra):
    words = {"batch": options.batch, "seq": options.seq, "steps": 1, "dtype": options.dtype,
             "attention": options.attention, "checkpointing": options.checkpointing,
             "accumulation": options.accumulation, "autocast": options.autocast,
             "optimizer": options.optimizer, "implementation": options.implementation,
             "sdpa": options.sdpa, "offload": options.offload, "freeze": ",".join(options.freeze),
             "use_cache": int(options.use_cache), "keep_outputs": int(options.keep_outputs),
             "optimizer_in_backward": int(options.optimizer_in_backward)}
    if options.lora_rank:
        words.update(lora_rank=options.lora_rank, lora_dropout=options.lora_dropout,
                     lora_targets=",".join(options.lora_targets), dora=int(options.dora))
    if options.ia3:
        words.update(ia3=1, lora_targets=",".join(options.lora_targets))
    return [f"{name}={value}" for name, value in {**words, **extra}.items()]


# (case, checkpointing): by how many bytes the peaks may differ, and why.
DIFFERENCES = {
    ("lora-t5", "reentrant"): (5120, "the biases that a block passes on are let go a block sooner"),
}


# Of each case and attention one or two ways of checkpointing, always; of the next case the others.
@pytest.mark.parametrize(("case", "attention", "checkpointing"), matrix.in_turns(
    itertools.product(CASES, ("eager", "sdpa"), ("none", "reentrant", "non_reentrant")),
    lambda i, _: (i + i // 6) % 2 == 0))
def test_allocations_are_those_of_eager_pytorch(case, attention, checkpointing):
    family, settings, extra = CASES[case]
    config = CONFIGS / f"{family}.json"
    options = memory_oracle.Options(attention=attention, checkpointing=checkpointing, steps=1,
                                    **settings)
    expected = run_oracle(config, options)
    run = subprocess.run([step_dump(), str(config), *words_of(options, extra)],
                         capture_output=True, text=True, check=True)
    actual = json.loads(run.stdout)
    outcome = compare(expected, actual, step=0)
    bound, reason = DIFFERENCES.get((case, checkpointing), (0, ""))
    if bound:
        assert abs(outcome.expected_peak - outcome.actual_peak) <= bound, (reason, outcome.report)
        return
    assert outcome.equal, outcome.report


SELECTIVE = ("selective", "selective-attention", "selective-products", "selective-every-2",
             "selective-every-3")


@pytest.mark.parametrize("kind", SELECTIVE)
@pytest.mark.parametrize(("family", "attention", "settings"), [
    ("llama", "sdpa", {}), ("llama", "eager", {}), ("gpt2", "sdpa", {}), ("gpt2", "eager", {}),
    ("opt", "sdpa", {"sdpa": "efficient"}), ("phi", "sdpa", {}), ("bloom", "eager", {}),
    ("llama_tied", "sdpa", {"lora_rank": 4}), ("qwen3", "sdpa", {"dora": True, "lora_rank": 4}),
    ("gemma2", "eager", {"ia3": True}), ("llama", "sdpa", {"dtype": "float32",
                                                           "autocast": "bfloat16"}),
    ("mixtral", "sdpa", {}), ("deepseek_v3", "sdpa", {}),
])
def test_selective_checkpoints_allocate_what_eager_pytorch_does(family, attention, settings, kind):
    config = CONFIGS / f"{family}.json"
    options = memory_oracle.Options(attention=attention, checkpointing=kind, steps=1, **settings)
    expected = run_oracle(config, options)
    run = subprocess.run([step_dump(), str(config), *words_of(options, {})],
                         capture_output=True, text=True, check=True)
    outcome = compare(expected, json.loads(run.stdout), step=0)
    assert outcome.equal, outcome.report


def test_parameters_under_lora_are_named_as_peft_names_them():
    config = CONFIGS / "llama.json"
    options = memory_oracle.Options(lora_rank=4, steps=1)
    expected = run_oracle(config, options)
    run = subprocess.run([step_dump(), str(config), *words_of(options, {"parameters": 1})],
                         capture_output=True, text=True, check=True)
    ours = [(entry["name"], entry["shape"]) for entry in json.loads(run.stdout)["parameters"]]
    theirs = [(entry["name"], entry["shape"]) for entry in expected["parameters"]]
    assert ours == theirs


def chunked_forward(model, input_ids, labels, **named):
    """A causal model's forward function with torchtune's loss: its chunked_output and
    CEWithChunkedOutputLoss, 8 pieces of the sequence."""
    import torch
    hidden = model.model(input_ids=input_ids, **named).last_hidden_state
    logits = [model.lm_head(piece) for piece in hidden.chunk(8, dim=1)]
    ignored = torch.full((labels.shape[0], 1), -100, device=labels.device)
    labels = torch.hstack((labels[..., 1:], ignored))
    del ignored
    count = (labels != -100).sum()
    targets = [piece.reshape(-1) for piece in labels.chunk(8, dim=1)]
    rows = [piece.reshape(-1, piece.size(-1)) for piece in logits]
    total = 0.0
    for piece, target in zip(rows, targets, strict=True):
        total += torch.nn.functional.cross_entropy(piece.float(), target, reduction="sum")
    from transformers.modeling_outputs import CausalLMOutput
    return CausalLMOutput(loss=total / count)


@pytest.mark.parametrize("changed", [{}, {"lora_rank": 4}, {"checkpointing": "reentrant"},
                                     {"batch": 1}, {"seq": 13}])
def test_chunked_loss_allocates_what_eager_pytorch_does(changed, monkeypatch):
    memory_oracle.import_torch()
    from transformers.models.llama import modeling_llama
    monkeypatch.setattr(modeling_llama.LlamaForCausalLM, "forward", chunked_forward)
    config = CONFIGS / "llama.json"
    options = memory_oracle.Options(attention="sdpa", steps=1, **changed)
    expected = run_oracle(config, options)
    run = subprocess.run([step_dump(), str(config), *words_of(options, {"loss": "chunked"})],
                         capture_output=True, text=True, check=True)
    outcome = compare(expected, json.loads(run.stdout), step=0)
    assert outcome.equal, outcome.report
