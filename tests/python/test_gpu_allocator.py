"""perf/gpu/allocator.py as far as it goes without a GPU: the script must not fail where it matters."""

import dataclasses
import json
import os
import random
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def script(tool):
    pytest.importorskip("transformers")
    return tool("perf/gpu/allocator.py")


def test_every_training_is_run_under_every_allocator(script, capsys):
    assert script.main(["--list"]) == 0
    cells = [script.Cell(**cell) for cell in json.loads(capsys.readouterr().out)]
    trainings = {(cell.model, cell.pattern) for cell in cells}
    assert len(cells) == len(set(cells)) == 42 and len(trainings) == 15
    for allocator in ("default", "headroom"):
        assert {(cell.model, cell.pattern) for cell in cells if cell.allocator == allocator} == trainings


@pytest.mark.parametrize("pattern, losses", [("plain", 4), ("recompute", 4), ("lengths", 4),
                                             ("evaluate", 5)])
def test_a_worker_trains_the_same_way_twice(script, pattern, losses):
    cell = script.Cell("gpt2", pattern, "headroom", 2, 16, 4)
    first, second = (script.train(cell, "cpu", tiny=True) for _ in range(2))
    assert len(first["losses"]) == losses and first["losses"] == second["losses"]


def test_layers_gathered_from_shares_train_the_same_way_twice(script):
    """In processes of their own: the group that is made stays."""
    cell = dataclasses.asdict(script.Cell("llama", "zero", "headroom", 2, 16, 4))
    command = [sys.executable, script.__file__, "--worker", json.dumps(cell), "--device", "cpu", "--tiny"]
    first, second = (json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
                     for _ in range(2))
    assert len(set(first["losses"])) == 4 and first["losses"] == second["losses"]


def test_losses_that_differ_in_a_bit_are_seen(script):
    rows = [{"model": "gpt2", "pattern": "plain", "status": "ok", "losses": [(0.5).hex()]},
            {"model": "gpt2", "pattern": "plain", "status": "ok", "losses": [(0.5 + 2**-53).hex()]},
            {"model": "llama", "pattern": "plain", "status": "ok", "losses": ["0x1p0"]},
            {"model": "llama", "pattern": "plain", "status": "exit 1", "losses": ["0x1p1"]}]
    assert script.same_losses(rows) == [("gpt2", "plain")]


def test_each_allocator_is_asked_for_as_a_user_would(script, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "left over")
    arguments = script.parse(["--device", "cpu", "--tiny", "--headroom", "HEADROOM"])
    seen = {}
    for cell in script.cells(1, 16, 2)[:4]:
        command = script.command_of(cell, arguments, tmp_path / "a.json")
        environment = script.environment_of(cell, tmp_path)
        seen[cell.allocator] = ("--off" in command, environment.get("PYTORCH_CUDA_ALLOC_CONF"),
                                environment.get("HEADROOM_RUN_STREAM_ORDER"))
    assert seen == {"default": (True, None, None), "expandable": (True, "expandable_segments:True", None),
                    "headroom": (False, None, None), "headroom-apart": (False, None, "off")}


def test_one_cell_through_headroom_run(script, tmp_path):
    if "HEADROOM_BINARY" not in os.environ:
        pytest.skip("HEADROOM_BINARY names no program")
    arguments = script.parse(["--device", "cpu", "--tiny", "--headroom",
                              os.environ["HEADROOM_BINARY"]])
    cell = script.Cell("gpt2", "plain", "default", 1, 16, 2)
    row = script.run_cell(cell, arguments, tmp_path)
    assert row["status"] == "ok", row
    assert row["headroom_run"]["processes"][0]["outcome"] == "nothing"
    assert "gpt2     plain" in script.table([row])
    failed = script.run_cell(dataclasses.replace(cell, model="nosuch"), arguments, tmp_path)
    assert failed["status"].startswith("exit 1")


# perf/gpu/largest_batch.py

def test_the_largest_batch_is_found(tool):
    """Whatever line, or noise about it, reserved memory follows; and each try lies between what is known."""
    script, rng = tool("perf/gpu/largest_batch.py"), random.Random(1)
    for _ in range(500):
        largest, limit, noise = rng.randint(0, 120), 10**9, rng.choice((0.0, 0.02, 0.1))
        base = rng.random()
        slope = (1 - base) / (largest + rng.random() + 0.01)
        search = script.Search(rng.randint(1, 40), limit)
        while (batch := search.next()) is not None:
            assert search.fits < batch and (search.fails is None or batch < search.fails)
            reserved = min(1.0, (base + slope * batch) * (1 + noise * rng.random()))
            search.take(batch, int(limit * reserved) if batch <= largest else None)
        assert search.fits == largest


# perf/gpu/step_times.py

def test_steps_are_taken_in_turns(tool, tmp_path, capsys):
    if "HEADROOM_BINARY" not in os.environ:
        pytest.skip("HEADROOM_BINARY names no program")
    pytest.importorskip("transformers")
    script = tool("perf/gpu/step_times.py")
    words = ["--device", "cpu", "--tiny", "--only", "mixtral", "--rounds", "2", "--steps", "2", "--out", str(tmp_path),
             "--headroom", os.environ["HEADROOM_BINARY"]]
    assert script.main(words) == 0
    rows = json.loads((tmp_path / "times.json").read_text())
    assert [row["allocator"] for row in rows] == ["default", "headroom"]
    assert all([len(steps) for steps in row["rounds"]] == [2, 2] for row in rows)
    assert capsys.readouterr().out.count(" ok\n") == 2


def test_a_ratio_is_of_the_same_round(tool):
    script = tool("perf/gpu/step_times.py")
    base = {"rounds": [[10.0, 10.0, 30.0], [20.0, 20.0]]}  # a slower clock in the second
    assert script.ratios({"rounds": [[11.0, 11.0, 11.0], [22.0, 22.0]]}, base) == pytest.approx([1.1, 1.1])


# perf/gpu/shim.py

@pytest.fixture(scope="module")
def shim_script(tool):
    pytest.importorskip("torch")
    return tool("perf/gpu/shim.py")


def test_a_check_of_the_shim_runs_where_there_is_no_gpu(shim_script, monkeypatch):
    import torch
    monkeypatch.setattr(shim_script, "STEPS", 3)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)  # and again afterwards
    seen = shim_script.work("cudnn_benchmark", "cpu")
    assert seen["holds"] == {"stays on": True} and len(seen["values"]) == 3
    assert all(callable(getattr(shim_script, check)) for check in shim_script.CHECKS)


def test_what_the_shim_breaks_is_told(shim_script):
    def row(check, allocator, values, **more):
        return {"check": check, "allocator": allocator, "status": "ok", "values": values,
                "holds": {"x": True}, "backend": allocator, **more}
    fine = [row("mempool", "native", ["0x1p0"]), row("mempool", "headroom", ["0x1p0"]),
            row("cudnn_benchmark", "native", ["0x1p0"]), row("cudnn_benchmark", "headroom", ["0x1p1"])]
    assert list(shim_script.what_did_not_hold(fine)) == []
    broken = [row("mempool", "native", ["0x1p0"]),
              row("mempool", "headroom", ["0x1p1"], holds={"is in it": False}, backend="pluggable")]
    assert list(shim_script.what_did_not_hold(broken)) == [
        "mempool, headroom: not so: is in it", "mempool: the shim was not used, but pluggable",
        "mempool: values differ"]
