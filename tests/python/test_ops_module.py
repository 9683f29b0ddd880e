"""`headroom ops --model FILE.py:FUNCTION --phase prefill`: a forward pass of any module, by the operators that it makes. PyTorch's
own counter is the oracle of the work in products, convolutions and attention."""

import functools
import importlib.util
import json
import subprocess
import sys

import pytest

SOURCE = """
import torch
from torch import nn


def vit(batch=2):
    import transformers
    config = transformers.ViTConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
                                    image_size=64, patch_size=16, num_labels=10)
    return transformers.ViTForImageClassification(config), {"pixel_values": torch.zeros(batch, 3, 64, 64)}


def bert(batch=2, seq=48):
    import transformers
    config = transformers.BertConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
                                     vocab_size=100)
    return transformers.BertModel(config), {"input_ids": torch.zeros(batch, seq, dtype=torch.long)}


def convolutions(batch=2):
    module = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
                           nn.Conv2d(16, 16, 3, groups=16, padding=1), nn.Conv2d(16, 32, 1), nn.Dropout(0.5), nn.Flatten(),
                           nn.Linear(32 * 16 * 16, 10))
    return module, (torch.zeros(batch, 3, 32, 32),)


def attends_elsewhere(batch=2):
    class Cross(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(64, 4, batch_first=True)

        def forward(self, queries, keys):
            return self.attention(queries, keys, keys, need_weights=False)[0]
    return Cross(), (torch.zeros(batch, 40, 64), torch.zeros(batch, 7, 64))


def encoder(batch=2):
    return nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), (torch.zeros(batch, 24, 64),)


def fixed():
    return nn.Linear(8, 4), (torch.zeros(16, 8),)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("modules") / "models.py"
    path.write_text(SOURCE, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def predicted(headroom_binary):
    return functools.cache(functools.partial(predict, headroom_binary))


def predict(binary, target, *flags):
    done = subprocess.run([binary, "ops", "--model", target, "--phase", "prefill", "--device", "a100-sxm-80gb", "--json",
                           "--dtype", "float32", *flags], capture_output=True, text=True, timeout=300, check=False,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# In products, since the counter passes over the CPU's fused attention.
COUNTER = """
import importlib.util, json, sys, torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
spec = importlib.util.spec_from_file_location("models", sys.argv[1])
models = importlib.util.module_from_spec(spec)
spec.loader.exec_module(models)
torch.backends.mha.set_fastpath_enabled(False)  # one operator, which the counter passes over
counted = {}
for name in sys.argv[2:]:
    module, inputs = getattr(models, name)()
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        module.eval()(**inputs) if isinstance(inputs, dict) else module.eval()(*inputs)
    counted[name] = counter.get_total_flops()
print(json.dumps(counted))
"""
HAVE_TRANSFORMERS = importlib.util.find_spec("transformers") is not None
COUNTED = [*(("vit", "bert") if HAVE_TRANSFORMERS else ()), "convolutions", "attends_elsewhere", "encoder"]


@pytest.fixture(scope="module")
def counted(source):
    """By one process for all: starting PyTorch takes longer than counting."""
    done = subprocess.run([sys.executable, "-c", COUNTER, str(source), *COUNTED], capture_output=True, text=True, timeout=300,
                          check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["vit", "bert", "convolutions", "attends_elsewhere", "encoder"])
def test_the_work_is_what_pytorch_counts(source, predicted, counted, name):
    if name not in COUNTED:
        pytest.skip("transformers is not installed")
    answer = predicted(f"{source}:{name}")
    work = sum(part["flops"] for part in answer["parts"] if part["name"] in ("gemm", "attention"))
    assert work == counted[name]


def test_nothing_is_dropped_out_and_an_unknown_size_is_none(source, predicted):
    answer = predicted(f"{source}:convolutions")
    assert answer["seq"] is None and answer["batch"] == 2
    assert predicted(f"{source}:fixed")["batch"] is None
    # Convolutions, their normalization, and the linear layer; views and dropout launch nothing.
    assert answer["launches"] == 6


def test_an_embedding_reads_the_rows_that_it_picks(source, predicted):
    parts = {part["name"]: part for part in predicted(f"{source}:bert")["parts"]}
    assert parts["embedding"]["bytes"] < 4 * 2 * 48 * 64 * 4 * 2 + 4096
