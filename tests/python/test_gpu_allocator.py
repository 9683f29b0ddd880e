"""perf/gpu/allocator.py as far as it goes without a GPU: the script must not fail where it matters."""

import dataclasses
import json
import os

import pytest


@pytest.fixture(scope="module")
def script(tool):
    pytest.importorskip("transformers")
    return tool("perf/gpu/allocator.py")


def test_every_training_is_run_under_every_allocator(script, capsys):
    assert script.main(["--list"]) == 0
    cells = [script.Cell(**cell) for cell in json.loads(capsys.readouterr().out)]
    trainings = {(cell.model, cell.pattern) for cell in cells}
    assert len(cells) == len(set(cells)) == 30 and len(trainings) == 12
    for allocator in ("default", "headroom"):
        assert {(cell.model, cell.pattern) for cell in cells if cell.allocator == allocator} == trainings


@pytest.mark.parametrize("pattern, losses", [("plain", 4), ("recompute", 4), ("lengths", 4),
                                             ("evaluate", 5)])
def test_a_worker_trains_the_same_way_twice(script, pattern, losses):
    cell = script.Cell("gpt2", pattern, "headroom", 2, 16, 4)
    first, second = (script.train(cell, "cpu", tiny=True) for _ in range(2))
    assert len(first["losses"]) == losses and first["losses"] == second["losses"]
    assert first["step_ms"] > 0


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
    for cell in script.cells(1, 16, 2)[:3]:
        command = script.command_of(cell, arguments, tmp_path / "a.json")
        environment = script.environment_of(cell, tmp_path)
        seen[cell.allocator] = ("--off" in command, environment.get("PYTORCH_CUDA_ALLOC_CONF"))
    assert seen == {"default": (True, None), "expandable": (True, "expandable_segments:True"),
                    "headroom": (False, None)}


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
