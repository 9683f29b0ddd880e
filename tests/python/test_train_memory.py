"""perf/gpu/train_memory.py as far as no GPU is needed: its design, and two settings on a CPU."""

import collections
import csv
import json
import subprocess
import sys

import pytest

from conftest import REPO, load_tool

tool = load_tool(REPO / "perf" / "gpu" / "train_memory.py")


def test_design_is_balanced_and_repeatable():
    settings = tool.design(80, 7)
    assert settings == tool.design(80, 7)
    assert settings != tool.design(80, 8)
    families = collections.Counter(s.family for s in settings)
    assert set(families) == set(tool.FAMILIES) and max(families.values()) == 8
    for name in ("method", "checkpointing", "optimizer", "seq"):
        counts = collections.Counter(getattr(s, name) for s in settings)
        assert max(counts.values()) - min(counts.values()) <= 1, name
    assert all(s.attention == "eager" for s in settings if s.family in tool.EAGER_ONLY)


def test_batches_are_bounded():
    for setting in tool.design(200, 1):
        vocab = tool.FAMILIES[setting.family].get("vocab_size", 50304)
        assert setting.batch >= 1
        assert setting.batch == 1 or setting.batch * setting.seq * vocab <= tool.MOST_LOGITS


def test_both_halves_have_families():
    assert set(tool.HELD_ASIDE) < set(tool.FAMILIES)
    assert len(tool.HELD_ASIDE) * 2 == len(tool.FAMILIES)


def test_a_failed_setting_stays_in_with_its_reason():
    setting = tool.design(1, 1)[0]
    about = {"gpu": "NVIDIA H200", "torch": "2.11", "cuda": "13.0", "notes": ""}
    rows = tool.rows_of(setting, {"status": "OutOfMemoryError: x"}, about, 1.0)
    assert len(rows) == 1 and rows[0]["status"].startswith("OutOfMemory")
    assert set(rows[0]) == set(tool.COLUMNS)


def test_a_child_that_hangs_is_ended():
    children = [tool.Child(lambda *_: tool.time.sleep(60), None, None, "cpu", 0.3),
                tool.Child(lambda *_: {"peak": 1}, None, None, "cpu", 30)]
    (_, first), = tool.ended(children)
    assert first == {"peak": 1}
    (_, last), = tool.ended(children)
    assert "cut off" in last["status"] and not children


def test_two_tiny_settings_on_a_cpu(tmp_path):
    pytest.importorskip("transformers")
    pytest.importorskip("peft")
    # In a program of its own: the tool forks, which autograd forbids once any test has run a backward.
    run = subprocess.run([sys.executable, tool.__file__, "--out", str(tmp_path), "--device", "cpu",
                          "--tiny", "--settings", "2", "--seconds", "120"],
                         capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    rows = []
    for name in ("measured_look", "measured_aside"):
        with open(tmp_path / f"{name}.csv", newline="") as file:
            rows += list(csv.DictReader(file))
    assert {row["status"] for row in rows} == {"ok"} and len(rows) == 4
    for row in rows:
        config = json.loads((tmp_path / row["model"]).read_text())
        assert config["vocab_size"] == 128 and int(row["n_params"]) > 0
