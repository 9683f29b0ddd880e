"""Libraries of Triton kernels in the symbolic step against their own Python code: Liger-Kernel's, and
fms-acceleration's fast kernels.

Triton kernels cannot run here, but the autograd functions around them can, on fake tensors and with
launches that do nothing (triton_stub.py): every allocation and release of a training step has to
agree. Each case is a process of its own (liger_oracle.py, fast_oracle.py), since patches are not taken back. What a
kernel would read from the device is not seen; nothing is allocated by it.

Wants liger-kernel 0.8 and fms-acceleration-foak 0.7 (pip install --no-deps liger-kernel==0.8.5
fms-acceleration-foak==0.7.4); HEADROOM_KERNELS may name folders that have them. Where one is missing, its
tests say so and are skipped.
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
FOLDERS = os.environ.get("HEADROOM_KERNELS", "")


def wants(package, distribution):
    """Skips a test, and says so, where the library is neither installed nor in a named folder."""
    folders = [folder for folder in FOLDERS.split(os.pathsep) if folder]
    is_there = importlib.util.find_spec(package) is not None or any(
        os.path.isdir(os.path.join(folder, package)) for folder in folders)
    return pytest.mark.skipif(not is_there, reason=(
        f"{distribution.upper()} IS NOT INSTALLED, so nothing here is held against it: "
        f"pip install --no-deps {distribution}, or name its folder in HEADROOM_KERNELS"))


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


def oracle(program, family, options, folder):
    """The trace of the patched model, from a process of its own."""
    out = folder / "oracle.json"
    command = [sys.executable, str(HERE / program[0]), *program[1:],
               "--config", str(step_dump.CONFIGS / f"{family}.json"), "--out", str(out)]
    for name, value in options.items():
        command += ["--" + name.replace("_", "-"), str(value)]
    paths = [str(HERE.parents[1] / "python"), str(HERE), FOLDERS, os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(out.read_text(encoding="utf-8"))


# A process of its own takes ten seconds; these stand for the others in every run.
SHORT = ("loss-frozen-head", "loss-autocast-accumulation", "cross-entropy", "llama-non-reentrant",
         "gemma2")


@wants("liger_kernel", "liger-kernel==0.8.5")
@pytest.mark.parametrize("case", [
    case if case in SHORT else pytest.param(case, marks=pytest.mark.full) for case in CASES])
def test_allocations_are_those_of_liger(case, tmp_path):
    family, patches, words, changed = CASES[case]
    options = {**COMMON, **changed}
    expected = oracle(["liger_oracle.py", patches], family, options, tmp_path)
    actual = step_dump.run(step_dump.CONFIGS / f"{family}.json", multiprocessors=132,
                           **{**options, **words})
    outcome = compare(expected, actual, step=0)
    assert outcome.equal, outcome.report


@wants("fms_acceleration_foak", "fms-acceleration-foak==0.7.4")
@pytest.mark.parametrize("changed", [
    {}, {"checkpointing": "reentrant", "attention": "eager", "lora_rank": 4},
    {"checkpointing": "non_reentrant", "lora_rank": 4}])
def test_allocations_are_those_of_fast_kernels(changed, tmp_path):
    options = {**COMMON, **changed}
    expected = oracle(["fast_oracle.py"], "llama", options, tmp_path)
    actual = step_dump.run(step_dump.CONFIGS / "llama.json", kernels="fast", **options)
    outcome = compare(expected, actual, step=0)
    assert outcome.equal, outcome.report
