"""`headroom bench device` on the CPU, from the runner to a prediction that uses what it measured.

Nothing here judges how fast this machine is or how well a law does on it: CI's machines are busy.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headroom import device_probe


STEADY_PROBE = Path(__file__).with_name("stand_in") / "steady_probe.py"


def headroom(binary, *arguments, cwd, timeout=300, python=sys.executable):
    return subprocess.run([binary, *arguments], cwd=cwd, capture_output=True, text=True, timeout=timeout,
                          check=False, env={**os.environ, "HEADROOM_PYTHON": str(python)})


@pytest.fixture(scope="module")
def headroom_binary():
    named = os.environ.get("HEADROOM_BINARY")
    if not named:
        pytest.skip("headroom is not built; set HEADROOM_BINARY")
    return os.path.abspath(named)


@pytest.fixture(scope="module")
def measured(headroom_binary, tmp_path_factory):
    """All of it, but that the time of a call comes from a roofline: no other work disturbs it."""
    folder = tmp_path_factory.mktemp("bench")
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{STEADY_PROBE}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    done = headroom(headroom_binary, "bench", "device", "--seconds", "4", "--json", cwd=folder, python=python)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_the_clock_is_real(headroom_binary, tmp_path):
    done = headroom(headroom_binary, "bench", "device", "--seconds", "4", "--json", cwd=tmp_path)
    if done.returncode != 0:
        # What other work disturbed is left out, and that may be nearly all.
        assert done.returncode == 3 and "let the machine do nothing else meanwhile" in done.stderr, done.stderr
        return
    answer = json.loads(done.stdout)
    kept = json.loads((tmp_path / answer["calibration_file"]).read_text())
    assert len(kept["points"]) == answer["points"]
    assert len({point["seconds"] for point in kept["points"]}) > answer["points"] / 2


def test_every_class_is_measured(measured):
    folder, answer = measured
    assert answer["schema"] == "headroom.bench_device/1"
    assert answer["device"] == "cpu"
    measured_classes = [row["class"] for row in answer["classes"]]
    assert set(measured_classes + answer["classes_without_law"]) == set(device_probe.CLASSES)
    assert answer["classes_without_law"] == [] and answer["disturbed_points"] == 0
    whole = sum(row["points"] for row in answer["classes"])
    assert whole >= device_probe.LEAST_POINTS * len(device_probe.CLASSES)
    kept = json.loads((folder / answer["calibration_file"]).read_text())
    assert kept["schema"] == "headroom.calibration/1"
    assert len(kept["points"]) == answer["points"]
    assert all(point["seconds"] > 0 for point in kept["points"])


def test_a_prediction_uses_it(measured, headroom_binary):
    folder, answer = measured
    question = ["bench", "decode", "openai-community/gpt2", "--predict", "--device", "cpu", "--dtype", "float32",
                "--context", "128", "--batches", "1,4", "--json"]
    without = headroom(headroom_binary, *question, cwd=folder)
    assert without.returncode == 4 and "is not known" in without.stderr
    done = headroom(headroom_binary, *question, "--calibration", answer["calibration_file"], cwd=folder)
    assert done.returncode == 0, done.stderr
    steps = json.loads(done.stdout)["steps"]
    assert [step["batch"] for step in steps] == [1, 4]
    assert all(step["matmul"]["provenance"] == "calibrated" for step in steps)


@pytest.mark.parametrize("device", ["cuda:7", "cuda"])
def test_a_device_that_is_not_there(headroom_binary, tmp_path, device):
    done = headroom(headroom_binary, "bench", "device", "--on", device, cwd=tmp_path)
    assert done.returncode == 4
    assert f"there is no device {device}: PyTorch sees no GPU here" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [["--dtype", "float64"], ["--seconds", "0"], ["gpt2"], ["--on", "tpu"]])
def test_what_cannot_be_asked(headroom_binary, tmp_path, words):
    done = headroom(headroom_binary, "bench", "device", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_kept_is_said_before_it_is_measured(headroom_binary, tmp_path):
    done = headroom(headroom_binary, "bench", "device", "--save-calibration", "nowhere/x.json", cwd=tmp_path,
                    python="/nowhere/python")
    assert done.returncode == 3 and "nowhere/x.json" in done.stderr, done.stderr
    assert not list(tmp_path.iterdir())


def test_a_failure_on_the_way_leaves_nothing(monkeypatch, tmp_path):
    """A device that disappears in mid-run: the runner says so and writes nothing."""
    calls = []

    def fails(machine, call, seconds):
        calls.append(seconds)
        if len(calls) > 5:
            raise RuntimeError("CUDA error: device lost")
        return [1e-3] * 5, 0.0

    monkeypatch.setattr(device_probe, "take_samples", fails)
    out = tmp_path / "points.json"
    monkeypatch.setattr("sys.argv", ["device_probe", "--seconds", "1", "--out", str(out)])
    assert device_probe.main() == device_probe.EXIT_PARTIAL
    assert not out.exists()


def test_work_is_counted_as_the_laws_count_it():
    shape = {"batch": 2, "heads": 8, "kv_heads": 2, "head_dim": 64, "queries": 1, "context": 100}
    flops, moved = device_probe.work_of("attention_decode", shape, 2)
    assert flops == 4 * 2 * 8 * 100 * 64
    assert moved == 2 * (2 * 2 * 8 * 64 + 2 * 2 * 2 * 100 * 64)
    flops, moved = device_probe.work_of("gemm", {"batch": 1, "m": 3, "n": 5, "k": 7}, 4)
    assert (flops, moved) == (210, 4 * (21 + 35 + 15))
