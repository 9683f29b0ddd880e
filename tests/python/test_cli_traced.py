"""`headroom fit FILE.py:FUNCTION` from outside: what it prints, and what goes wrong in other people's
code or on their machines."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import REPO

EXAMPLE = REPO / "docs" / "examples" / "traced" / "train.py"

SOURCE = """
import torch

def build(batch=3):
    module = torch.nn.Linear(8, 5)
    return module, (torch.zeros(batch, 8),), lambda out: out.sum()

def raises():
    module = torch.nn.Linear(8, 5)
    return module, (torch.zeros(3, 9),), lambda out: out.sum()

def leaves():
    raise SystemExit(0)

def fixed():
    return torch.nn.Linear(8, 5), (torch.zeros(3, 8),), lambda out: out.sum()
"""


def binary():
    named = os.environ.get("HEADROOM_BINARY")
    found = [named] if named else sorted(REPO.glob("build/*/src/cli/headroom"),
                                         key=os.path.getmtime)
    if not found:
        pytest.skip("headroom is not built; set HEADROOM_BINARY")
    return str(found[-1])


@pytest.fixture
def fit(tmp_path):
    (tmp_path / "train.py").write_text(SOURCE, encoding="utf-8")

    def run(target, *flags, python=sys.executable, **environment):
        command = [binary(), "fit", target, "--device", "a100-sxm-80gb", *flags]
        # No HF cache, no colours, and a Python that has what this one has.
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300,
                              stdin=subprocess.DEVNULL, check=False,
                              env=os.environ | {"HEADROOM_PYTHON": python} | environment)
    return run


def answer(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def setting(told, name):
    return next((s for s in told["settings"] if s["name"] == name), None)


def test_a_module_of_ones_own(fit, tmp_path):
    done = fit(f"{EXAMPLE}:encoder", "--html", str(tmp_path / "page.html"), "--json")
    told = answer(done)
    assert told["schema"] == "headroom.fit/1" and told["fits"] == "yes"
    assert told["model"].endswith("train.py:encoder")
    attention, block, norms = 4 * (64 * 64 + 64), 2 * 64 * 128 + 128 + 64, 4 * 64
    assert told["parameters"] == 2 * 500 * 64 + 3 * (attention + block + norms)
    assert setting(told, "batch") == {"name": "batch", "value": "2", "origin": "config"}
    assert setting(told, "inputs")["value"] == "0 [2, 16] int64"
    assert setting(told, "method") is None and setting(told, "loss") is None
    assert told["memory"]["provenance"]["allocated"] == "counted"
    assert told["memory"]["breakdown_bytes"]["lm_head_weight"] == 64 * 500 * 4
    assert any("--search true" in warning for warning in told["warnings"])
    names = {remedy["name"] for remedy in told["remedies"]}
    assert "8-bit-states" in names and not names & {"lora", "qlora", "fused-linear-loss"}
    assert "train.py:encoder" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "train.py"]


def test_an_operator_without_a_kind_of_ours_makes_figures_extrapolated(fit):
    told = answer(fit(f"{EXAMPLE}:conv_attention", "--json"))
    assert told["memory"]["provenance"]["allocated"] == "extrapolated"
    assert any("native_batch_norm" in assumption for assumption in told["assumptions"])
    assert "accumulate" in {remedy["name"] for remedy in told["remedies"]}


def test_settings_that_the_tracer_applies(fit):
    told = answer(fit("train.py:build", "--json", "--batch", "16", "--dtype", "bf16",
                      "--optimizer", "sgd", "--allocator", "expandable_segments:True"))
    assert setting(told, "inputs")["value"] == "0 [16, 8] bfloat16"
    assert setting(told, "batch")["origin"] == "given"
    assert told["memory"]["breakdown_bytes"]["optimizer_states"] == 0


def test_sizes_are_searched_where_that_is_asked_for(fit):
    told = answer(fit("train.py:build", "--json", "--search", "true"))
    assert told["largest_batch"]["at_bound"] and told["longest_seq"] is None


@pytest.mark.parametrize("target, flags, code, words", [
    ("train.py:raises", (), 3, ["RuntimeError", "train.py:"]),
    ("train.py:leaves", (), 3, ["SystemExit", "in leaves"]),
    ("none.py:build", (), 3, ["none.py: no such file"]),
    ("train.py:fixed", ("--batch", "4"), 3, ["takes no `batch`"]),
    ("train.py:fixed", ("--checkpointing", "full"), 2, ["no layers"]),
    ("train.py:fixed", ("--method", "lora"), 2, ["--method", "settled by the function"]),
    ("train.py:fixed", ("--torch", "2.4"), 2, ["--torch", "not by 2.4"]),
])
def test_refusals_say_what_to_change(fit, target, flags, code, words):
    done = fit(target, *flags)
    assert done.returncode == code, done.stderr
    assert done.stdout == "" and done.stderr.startswith("headroom: error: ")
    for word in words:
        assert word in done.stderr


def test_without_pytorch_it_says_what_to_install(fit, tmp_path):
    bare = tmp_path / "python"  # without site-packages: a Python that nothing was installed for
    bare.write_text(f'#!/bin/sh\nexec {Path(sys.executable).resolve()} -S "$@"\n')
    bare.chmod(0o755)
    done = fit("train.py:build", python=str(bare))
    assert done.returncode == 4, done.stderr
    assert "PyTorch is not installed" in done.stderr and "HEADROOM_PYTHON" in done.stderr


def test_without_python_it_says_which_one_it_looked_for(fit):
    done = fit("train.py:build", python="/nowhere/python")
    assert done.returncode == 4 and "/nowhere/python" in done.stderr


def test_a_table_of_measurements_runs_no_code(fit, tmp_path):
    (tmp_path / "table.csv").write_text("id,model,gpu,gpus,method,value_bytes,metric\n"
                                        "1,train.py:leaves,A100-80GB,1,full,1000,peak\n")
    done = subprocess.run([binary(), "fit", "--against", "table.csv", "--json"], cwd=tmp_path,
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)["rows"][0]
    assert row["status"] == "unsupported"
