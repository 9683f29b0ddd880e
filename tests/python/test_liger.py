"""Liger-Kernel in the symbolic step against Liger-Kernel's own Python code.

Its Triton kernels cannot run here, but the autograd functions around them can, on fake tensors and with
launches that do nothing (triton_stub.py): every allocation and release of a training step has to
agree. Each case is a process of its own (liger_oracle.py), since patches are not taken back. What a
kernel would read from the device is not seen; nothing is allocated by it.

Wants liger-kernel 0.8 (pip install --no-deps liger-kernel==0.8.5); HEADROOM_LIGER may name a folder
that has it. Where there is none, the tests say so and are skipped.
"""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
import step_dump

from headroom.trace_compare import compare

HERE = step_dump.CONFIGS.parent
LIGER = os.environ.get("HEADROOM_LIGER", "")
IS_THERE = bool(LIGER) or importlib.util.find_spec("liger_kernel") is not None
pytestmark = pytest.mark.skipif(not IS_THERE, reason=(
    "LIGER-KERNEL IS NOT INSTALLED, so nothing here is held against it: "
    "pip install --no-deps liger-kernel==0.8.5, or name its folder in HEADROOM_LIGER"))

LOSS = "fused_linear_cross_entropy"
ALL = f"rope,rms_norm,swiglu,geglu,{LOSS}"
LIGER_WORDS = {"kernels": "liger", "loss": "fused-linear"}

# name: family, what Liger patches, step_dump's words for it, options that both take.
CASES = {
    "loss": ("llama", LOSS, {"loss": "fused-linear"}, {}),
    "loss-checkpointed": ("llama", LOSS, {"loss": "fused-linear"}, {"checkpointing": "reentrant"}),
    "loss-tied": ("llama_tied", LOSS, {"loss": "fused-linear"}, {}),
    "loss-frozen-head": ("llama", LOSS, {"loss": "fused-linear"}, {"lora_rank": 4}),
    "loss-capped-logits": ("gemma2", LOSS, {"loss": "fused-linear"}, {"attention": "eager"}),
    "loss-many-chunks": ("llama", LOSS, {"loss": "fused-linear"}, {"batch": 3, "seq": 13}),
    "loss-float32-weights": (
        "llama", LOSS, {"loss": "fused-linear"}, {"dtype": "float32", "attention": "eager"}),
    "loss-autocast": (
        "llama", LOSS, {"loss": "fused-linear"}, {"dtype": "float32", "autocast": "bfloat16"}),
    "loss-autocast-accumulation": (
        "llama", LOSS, {"loss": "fused-linear"},
        {"dtype": "float32", "autocast": "bfloat16", "accumulation": 2}),
    "loss-float32-accumulation": (
        "llama", f"{LOSS},accum_float32", {"loss": "fused-linear", "accum_float32": 1}, {}),
    "cross-entropy": ("llama", "cross_entropy", {"loss": "fused"}, {}),
    "cross-entropy-granite": (
        "granite", "rope,rms_norm,swiglu,cross_entropy", {"kernels": "liger", "loss": "fused"}, {}),
    "llama": ("llama", ALL, LIGER_WORDS, {}),
    "llama-eager": ("llama", ALL, LIGER_WORDS, {"attention": "eager"}),
    "llama-reentrant": ("llama", ALL, LIGER_WORDS, {"checkpointing": "reentrant"}),
    "llama-non-reentrant": ("llama", ALL, LIGER_WORDS, {"checkpointing": "non_reentrant"}),
    "llama-lora": ("llama", ALL, LIGER_WORDS, {"lora_rank": 4, "checkpointing": "non_reentrant"}),
    "llama-lora-autocast": ("llama", ALL, LIGER_WORDS, {"lora_rank": 4, "autocast": "bfloat16"}),
    "llama-autocast": ("llama", ALL, LIGER_WORDS, {"dtype": "float32", "autocast": "bfloat16"}),
    "mistral": ("mistral", ALL, LIGER_WORDS, {}),
    "qwen2": ("qwen2", ALL, LIGER_WORDS, {}),
    "qwen3": ("qwen3", ALL, LIGER_WORDS, {"checkpointing": "reentrant"}),
    "phi3": ("phi3", ALL, LIGER_WORDS, {}),
    "gemma": ("gemma", ALL, LIGER_WORDS, {}),
    "gemma2": ("gemma2", ALL, LIGER_WORDS, {"attention": "eager"}),
    "gemma3_text": ("gemma3_text", ALL, LIGER_WORDS, {}),
    "glm4": ("glm4", f"rms_norm,swiglu,{LOSS}", LIGER_WORDS, {}),
}
COMMON = {"batch": 2, "seq": 16, "steps": 1, "dtype": "bfloat16", "attention": "sdpa",
          "checkpointing": "none"}


def oracle(family, patches, options, folder):
    """The trace of the patched model, from a process of its own."""
    out = folder / "oracle.json"
    command = [sys.executable, str(HERE / "liger_oracle.py"), patches,
               "--config", str(step_dump.CONFIGS / f"{family}.json"), "--out", str(out)]
    for name, value in options.items():
        command += ["--" + name.replace("_", "-"), str(value)]
    paths = [str(HERE.parents[1] / "python"), str(HERE), LIGER, os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(out.read_text(encoding="utf-8"))


# A process of its own takes ten seconds; these stand for the others in every run.
SHORT = ("loss-frozen-head", "loss-autocast-accumulation", "cross-entropy", "llama-non-reentrant",
         "gemma2")


@pytest.mark.parametrize("case", [
    case if case in SHORT else pytest.param(case, marks=pytest.mark.full) for case in CASES])
def test_allocations_are_those_of_liger(case, tmp_path):
    family, patches, words, changed = CASES[case]
    options = {**COMMON, **changed}
    expected = oracle(family, patches, options, tmp_path)
    actual = step_dump.run(step_dump.CONFIGS / f"{family}.json", multiprocessors=132,
                           **{**options, **words})
    outcome = compare(expected, actual, step=0)
    assert outcome.equal, outcome.report
