"""`headroom run --measure`: what a process sees of its own setting, as rows that fit reads."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from headroom.run.setting import Setting, method_words, optimizer_words  # noqa: E402

CONFIG = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
          "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 128, "use_cache": False}


def llama():
    config = transformers.LlamaConfig(**CONFIG)
    config._attn_implementation = "sdpa"
    return transformers.LlamaForCausalLM(config).train()


def watched(model, optimizer, path, lengths, accumulation=1, autocast=None):
    """The columns after a training of len(lengths) iterations."""
    setting = Setting(torch, str(path))
    for length in lengths:
        for _ in range(accumulation):
            tokens = torch.randint(0, 128, (3, length))
            with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
                model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        setting.look(optimizer)
    return setting.columns()


def test_a_full_fine_tuning_is_seen_whole(tmp_path):
    model = llama()
    model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    seen = watched(model, optimizer, tmp_path / "m.csv", [16] * 4, accumulation=2)
    assert {name: seen[name] for name in (
        "method", "weights_dtype", "optimizer", "micro_batch", "seq_len", "grad_accum", "act_ckpt",
        "attention", "mixed_precision", "loss_impl", "framework", "quality")} == {
        "method": "full fine-tune", "weights_dtype": "float32", "optimizer": "AdamW fused",
        "micro_batch": 3, "seq_len": 16, "grad_accum": 2, "act_ckpt": "full", "attention": "sdpa",
        "mixed_precision": "none (pure)", "loss_impl": "HF CE", "framework": "plain loop",
        "quality": "A"}
    assert seen["n_params"] == sum(p.numel() for p in model.parameters())
    kept = json.loads((tmp_path / seen["model"]).read_text())
    assert kept["model_type"] == "llama" and kept["hidden_size"] == 32
    assert not model._forward_pre_hooks  # nothing is watched any more


def test_adapters_lengths_that_vary_and_autocast(tmp_path):
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(llama(), peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    trainable = [p for p in model.parameters() if p.requires_grad]
    seen = watched(model, torch.optim.SGD(trainable, lr=1e-3), tmp_path / "m.csv", [16, 24, 8, 8],
                   autocast=torch.bfloat16)
    assert seen["method"] == (f"LoRA r=4 targets=['q_proj', 'v_proj'] "
                              f"trainable={sum(p.numel() for p in trainable)}")
    assert seen["seq_len"] == "<=24" and seen["optimizer"] == "SGD"
    assert seen["mixed_precision"] in ("bf16 autocast", "none (pure)")  # CPU's autocast is its own


def test_what_cannot_be_seen_stays_empty(tmp_path):
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.Adagrad(model.parameters())
    setting = Setting(torch, str(tmp_path / "m.csv"))
    for _ in range(4):
        setting.look(optimizer)
    seen = setting.columns()
    assert seen["quality"] == "B" and seen["optimizer"] == "Adagrad"
    assert "model" not in seen and "micro_batch" not in seen
    setting = Setting(torch, str(tmp_path / "m.csv"))
    setting.look(object())  # not an optimizer at all
    assert "AttributeError" in setting.columns()["notes"]


def test_words_of_optimizers_and_methods():
    class AdamW8bit:
        param_groups = []
    assert optimizer_words(AdamW8bit()) == "AdamW 8bit"
    model = torch.nn.Linear(4, 4)
    assert method_words(model, 16) == "partial trainable=16"


TRAIN = """
import torch, transformers
model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{config})).train()
torch.cuda.init()
block = torch._C._cuda_cudaCachingAllocator_raw_alloc(50 << 20, 0)
optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
for _ in range(4):
    tokens = torch.randint(0, 128, (2, 8))
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_the_rows_are_rows_that_fit_reads(tmp_path):
    binary = os.environ.get("HEADROOM_BINARY")
    if binary is None:
        pytest.skip("HEADROOM_BINARY names no program")
    runtime = Path(binary).resolve().parents[1] / "runtime"
    if not (runtime / "libheadroom_fake_cuda.so").exists():
        pytest.skip("the fake driver is not built")
    (tmp_path / "train.py").write_text(TRAIN.format(config=CONFIG))
    environment = {**os.environ, "HOME": str(tmp_path),
                   "PYTHONPATH": str(Path(__file__).parent / "stand_in"),
                   "STAND_IN_NAME": "NVIDIA A100-SXM4-80GB",
                   "HEADROOM_CUDA_DRIVER": str(runtime / "libheadroom_fake_cuda.so"),
                   "PYTHONDONTWRITEBYTECODE": "1"}
    for _ in range(2):
        done = subprocess.run([binary, "run", "--measure", "mine.csv", "--", sys.executable,
                               "train.py"], capture_output=True, text=True, check=False,
                              cwd=tmp_path, env=environment, timeout=180)
        assert done.returncode == 0 and "1 row added" in done.stderr, done.stderr
    rows = list(csv.DictReader((tmp_path / "mine.csv").open()))
    assert len(rows) == 2 and rows[0]["value_bytes"] == str(50 << 20)
    against = subprocess.run([binary, "fit", "--against", "mine.csv", "--json"], check=False,
                             capture_output=True, text=True, cwd=tmp_path, timeout=60)
    answer = json.loads(against.stdout)
    assert [row["status"] for row in answer["rows"]] == ["ok", "ok"], against.stdout
    assert answer["rows"][0]["measured_bytes"] == 50 << 20
