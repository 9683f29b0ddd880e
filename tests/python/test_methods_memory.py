"""perf/gpu/methods_memory.py as far as no GPU is needed: its design, what fit is asked, and a few settings on a CPU."""

import collections
import csv
import subprocess
import sys

import pytest

from conftest import REPO, load_tool

tool = load_tool(REPO / "perf" / "gpu" / "methods_memory.py")


def test_design_is_balanced_and_repeatable():
    settings = tool.design(66, 7)
    assert settings == tool.design(66, 7) and len(settings) == 66
    assert {s.id for s in settings} == set(range(66))
    assert collections.Counter(s.way for s in settings) == {name: way.share for name, way in tool.WAYS.items()}
    for name, way in tool.WAYS.items():
        own = [s for s in settings if s.way == name]
        families = collections.Counter(s.family for s in own)
        assert set(families) <= set(way.families) and max(families.values()) - min(families.values()) <= 1, name


def test_any_first_part_has_of_every_way():
    first = tool.design(66, 20261121)[:22]
    assert {s.way for s in first} == set(tool.WAYS)
    aside = sum(s.family in tool.train_memory.HELD_ASIDE for s in first)
    assert 6 <= aside <= 16


def test_sizes_come_out_even_among_ranks():
    for s in tool.design(200, 3):
        config = tool.train_memory.FAMILIES[s.family]
        heads = config.get("num_key_value_heads", config.get("num_attention_heads", 20))
        assert heads % int(s.degree("tp")) == 0 and s.seq % int(s.degree("tp")) == 0
        assert s.stage < max(1, int(s.degree("pp"))) and s.accumulation % int(s.degree("pp")) == 0


def test_fit_is_asked_for_the_same_rank():
    by_way = {s.way: tool.flags_of(s) for s in tool.design(66, 20261121)}
    assert "--sequence-parallel" in by_way["sequence"] and "--compile" in by_way["compile"]
    assert "--pipeline-schedule" in by_way["chunks"] and "--reduce-bucket-size" in by_way["zero"]
    setting = next(s for s in tool.design(66, 20261121) if s.way == "fsdp-tensor")
    assert setting.ranks() == int(setting.degree("fsdp2")) * int(setting.degree("tp"))
    row = tool.rows_of(setting, {"peak": 1}, {"gpu": "", "torch": "", "cuda": "", "notes": ""}, 1.0)[0]
    assert set(row) == set(tool.COLUMNS) and row["flags"].startswith(f"--method full,{setting.division} ")


def test_tiny_settings_on_a_cpu(tmp_path):
    """Of tensor parallelism, a pipeline and both of torchtitan's plans; DeepSpeed and a compiler may not be there."""
    pytest.importorskip("transformers")
    chosen = ("import sys; sys.path.insert(0, {!r}); import dataclasses, methods_memory as tool\n"
              "design = tool.design\n"
              "tool.KIND = dataclasses.replace(tool.KIND, design=lambda *it: [s for s in design(*it) if s.id in (0, 1, 2, 5, 6)])\n"
              "sys.exit(tool.main())").format(str(REPO / "perf" / "gpu"))
    run = subprocess.run([sys.executable, "-c", chosen, "--out", str(tmp_path), "--device", "cpu", "--tiny", "--seconds", "120",
                          "--alone", "0", "--beside", "2"], capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    rows = []
    for name in ("measured_look", "measured_aside"):
        with open(tmp_path / f"{name}.csv", newline="") as file:
            rows += list(csv.DictReader(file))
    assert {row["status"] for row in rows} == {"ok"}
    assert {row["way"] for row in rows} == {"pipeline", "tensor", "sequence", "fsdp-tensor", "chunks"}
