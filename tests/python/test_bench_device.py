"""`headroom bench device` on the CPU, from the runner to a prediction that uses what it measured.

Nothing here judges how fast this machine is or how well a law does on it: CI's machines are busy.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headroom import collective_probe, device_probe, energy, fresh_memory, kept_memory, waiting


CLASSES = device_probe.CLASSES + device_probe.PROCESSOR_CLASSES
DATA = Path(__file__).parents[1] / "data"
STEADY_PROBE = Path(__file__).with_name("stand_in") / "steady_probe.py"


def headroom(binary, *arguments, cwd, timeout=300, python=sys.executable):
    return subprocess.run([binary, *arguments], cwd=cwd, capture_output=True, text=True, timeout=timeout,
                          check=False, env={**os.environ, "HEADROOM_PYTHON": str(python)})


@pytest.fixture(scope="module")
def measured(headroom_binary, tmp_path_factory):
    """All of it, but that the time of a call comes from a roofline: no other work disturbs it."""
    folder = tmp_path_factory.mktemp("bench")
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{STEADY_PROBE}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    for seconds in ("4", "30"):  # the second where other work leaves the first too few points
        done = headroom(headroom_binary, "bench", "device", "--seconds", seconds, "--json", cwd=folder, python=python)
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


@pytest.mark.full  # three quarters of a minute
def test_the_clock_is_real(headroom_binary, tmp_path):
    done = headroom(headroom_binary, "bench", "device", "--seconds", "4", "--json", cwd=tmp_path)
    if done.returncode != 0:
        # What other work disturbed is left out, and that may be nearly all.
        assert done.returncode == 3 and "the machine do" in done.stderr and "nothing else" in done.stderr, done.stderr
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
    assert set(measured_classes + answer["classes_without_law"]) == set(CLASSES)
    assert answer["classes_without_law"] == [] and answer["disturbed_points"] == 0
    assert all(row["spread_pct"] is None for row in answer["classes"])  # of one round
    whole = sum(row["points"] for row in answer["classes"])
    assert whole >= device_probe.LEAST_POINTS * len(CLASSES)
    kept = json.loads((folder / answer["calibration_file"]).read_text())
    assert kept["schema"] == "headroom.calibration/1"
    assert len(kept["points"]) == answer["points"]
    assert all(point["seconds"] > 0 for point in kept["points"])


def test_memory_and_latency_are_told(measured):
    folder, answer = measured
    kept = json.loads((folder / answer["calibration_file"]).read_text())
    sizes = [point["bytes"] for point in kept["bandwidth"]]
    cache = kept["machine"]["cache_bytes"]
    wanted = {*device_probe.MEMORY_BYTES, *(times * cache for times in device_probe.BEYOND_CACHES)}
    assert sizes == sorted(size for size in wanted if size <= sizes[-1]) and len(sizes) >= 3
    assert all(point["copy_bytes_per_second"] > 0 and point["read_bytes_per_second"] > 0 for point in kept["bandwidth"])
    assert kept["latency"]["launch_seconds"] > 0 and kept["latency"]["round_trip_seconds"] > 0
    assert "clock_hertz" in kept["machine"]
    assert [point["bytes"] for point in kept["fresh_memory"]] == list(fresh_memory.FRESH_BYTES)[:len(kept["fresh_memory"])]
    assert kept["fresh_memory"]


def test_fresh_memory_is_found_page_by_page():
    """The system itself says of the first time that each page is one it had to find, and of the second that none is."""
    resource = pytest.importorskip("resource")
    faults = []

    class Counting(device_probe.Machine):
        def seconds_of(self, call, times):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            taken = super().seconds_of(call, times)
            faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
            return taken

    torch = pytest.importorskip("torch")
    size = 48 << 20
    fresh_memory.fresh_sample(Counting(torch, "cpu"), size)
    largest_page = 2 << 20  # where the system gives such ones by itself
    assert faults[0] >= size // largest_page
    assert faults[1] < faults[0] / 4


def test_a_training_step_uses_it(measured, headroom_binary):
    folder, answer = measured
    question = ["fit", "openai-community/gpt2", "--device", "cpu", "--dtype", "fp32", "--batch", "1", "--seq", "128",
                "--search", "false", "--json"]
    without = headroom(headroom_binary, *question, cwd=folder)
    assert "time" not in json.loads(without.stdout)
    done = headroom(headroom_binary, *question, "--calibration", answer["calibration_file"], cwd=folder)
    time = json.loads(done.stdout)["time"]
    # At the stand-in's rates: 6 operations a parameter and token, of which embeddings have none.
    least = 6 * 85e6 * 128 / 5e10
    assert time["step_seconds_low"] < time["step_seconds"] < time["step_seconds_high"]
    assert least < time["step_seconds"] < 6 * least


def test_devices_tell_how_well_they_are_predicted(measured, headroom_binary):
    folder, answer = measured
    done = headroom(headroom_binary, "devices", "--calibration", answer["calibration_file"], "--json", cwd=folder)
    rows = {row["class"]: row for row in json.loads(done.stdout)["predicted"]}
    measured_rows = {row["class"]: row for row in answer["classes"]}
    for name, row in measured_rows.items():
        assert rows[name]["points"] == row["points"] and rows[name]["provenance"] == "calibrated"
        assert rows[name]["large"] == row["held_out_large"]


def test_linear_layers_in_int8_are_predicted_by_it(measured, headroom_binary):
    """Of a processor they are one operator, float to float; at the stand-in's one rate no faster where they compute."""
    folder, answer = measured
    question = ["ops", "--model", "openai-community/gpt2", "--calibration", answer["calibration_file"], "--dtype",
                "float32", "--quantize", "int8", "--batch", "4", "--seq", "256", "--json"]
    for phase in ("prefill", "decode"):
        done = headroom(headroom_binary, *question, "--phase", phase, cwd=folder)
        assert done.returncode == 0, done.stderr
        parts = {part["name"]: part for part in json.loads(done.stdout)["parts"]}
        assert "quantize" not in parts and parts["gemm"]["basis"].startswith("law of cpu for ")


def test_a_trace_of_the_engine_is_asked_about_int8(measured, headroom_binary):
    folder, answer = measured

    def ops(trace):
        done = headroom(headroom_binary, "ops", str(DATA / trace), "--calibration", answer["calibration_file"], "--json",
                        cwd=folder)
        found = json.loads(done.stdout)
        return [change for change in found["horizon"] if change["change"] == "gemm_int8_fused"], " ".join(found["notes"])

    changes, notes = ops("trace_cpu.json.gz")
    assert len(changes) == 1 and "by the calibration" in notes
    assert changes[0]["speedup_low"] < changes[0]["speedup"] < changes[0]["speedup_high"]
    changes, notes = ops("onnx_fp32.json.gz")
    assert changes == [] and "another engine's" in notes
    changes, notes = ops("trace_gpu.json")
    assert "the calibration is of cpu" in notes


def test_products_of_onnx_runtime(headroom_binary, tmp_path):
    for library in ("onnxruntime", "onnx"):
        pytest.importorskip(library)
    done = headroom(headroom_binary, "bench", "device", "--engine", "onnxruntime", "--seconds", "1", "--threads", "1",
                    "--json", cwd=tmp_path)
    if done.returncode == 3 and "the machine do" in done.stderr:
        return  # other work disturbed nearly all of it
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    rows = {row["class"]: row for row in answer["classes"]}
    assert set(rows) | set(answer["classes_without_law"]) == {"gemm_fp32", "linear_int8"}
    kept = json.loads((tmp_path / answer["calibration_file"]).read_text())
    assert kept["machine"]["engine"].startswith("onnxruntime ")
    asked = headroom(headroom_binary, "ops", str(DATA / "onnx_fp32.json.gz"), "--calibration", answer["calibration_file"],
                     "--json", cwd=tmp_path)
    changes = [change["change"] for change in json.loads(asked.stdout)["horizon"]]
    assert ("gemm_int8_fused" in changes) == (len(rows) == 2)


def test_freed_memory_is_kept():
    """Outputs of more than 32 MiB, which glibc else hands back and takes anew: their pages are not new."""
    code = """
import resource
from headroom.kept_memory import keep_freed_memory, touch
kept = keep_freed_memory()
import torch
x, faults = torch.ones(9_000_000), []
touch(torch, 400_000_000)
for _ in range(8):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    y = x + x
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    del y
print(int(kept), max(faults))
"""
    package = str(Path(kept_memory.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": package})
    kept, faults = map(int, done.stdout.split())
    if not kept:
        pytest.skip("this C library has no mallopt")
    pages = 9_000_000 * 4 // os.sysconf("SC_PAGE_SIZE")
    assert faults < pages / 10


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
    # By this machine's points: what lies beyond the shapes of so few of them is extrapolated.
    assert all(step["matmul"]["provenance"] in ("calibrated", "extrapolated") for step in steps)
    # So short a run measures no model, and so no host: GPU servers' is taken, and that is said.
    assert json.loads(done.stdout)["host_of_gpu_servers"] is True
    shown = headroom(headroom_binary, *question[:-1], "--calibration", answer["calibration_file"], cwd=folder)
    assert "the host was not measured on this machine" in shown.stdout


def test_two_runs_are_held_against_each_other(measured, headroom_binary):
    folder, answer = measured
    file = answer["calibration_file"]

    def compared(earlier, later, *more):
        return headroom(headroom_binary, "bench", "device", "--results", later, "--calibration", earlier, *more,
                        cwd=folder, python="/nowhere/python")
    once = compared(file, file)  # one round, which knows no spread
    assert once.returncode == 0 and "Whether the two runs agree is not known" in once.stdout, once.stderr
    for name, slower in (("twice.json", 1), ("later.json", 1.5)):
        kept = json.loads((folder / file).read_text())
        for point in kept["points"]:
            point.update(seconds=slower * point["seconds"], drift_log=0.1)
        (folder / name).write_text(json.dumps(kept))
    shown = compared("twice.json", "twice.json")
    assert shown.returncode == 0, shown.stderr
    assert "The two runs agree: 100 % of" in shown.stdout
    done = compared("twice.json", "later.json", "--json")
    assert done.returncode == 1, done.stderr
    agreement = json.loads(done.stdout)["agreement"]
    assert agreement["agrees"] is False and agreement["within"] == 0
    assert all(row["median_ratio_pct"] == pytest.approx(50) for row in agreement["classes"])


@pytest.mark.parametrize("device", ["cuda:7", "cuda"])
def test_a_device_that_is_not_there(headroom_binary, tmp_path, device):
    done = headroom(headroom_binary, "bench", "device", "--on", device, cwd=tmp_path)
    assert done.returncode == 4
    assert f"there is no device {device}: PyTorch sees no GPU here" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [["--dtype", "float64"], ["--seconds", "0"], ["gpt2"], ["--on", "tpu"], ["--threads", "0"],
                                   ["--results", "x.json", "--quick"]])
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


def test_processes_reduce_among_themselves():
    """Two processes, joined by gloo: each message once, and the traffic of a ring."""
    torch = pytest.importorskip("torch")
    if not torch.distributed.is_available():
        pytest.skip("this PyTorch has no torch.distributed")
    points = collective_probe.run_group(2, "cpu", 0.2)
    assert [point["shape"]["message"] for point in points] == collective_probe.MESSAGES
    for point in points:
        assert point["shape"]["group"] == 2 and point["seconds"] > 0 and point["drift_log"] >= 0
        assert point["bytes"] == point["shape"]["message"]  # 2 (2 - 1) / 2 of it


def test_a_group_that_fails_is_left_out_and_said(monkeypatch, capsys):
    machine = device_probe.Machine(pytest.importorskip("torch"), "cpu")

    def fails(group, on, seconds):
        if group == 3:
            raise RuntimeError("connection refused\nand more")
        return [group]

    monkeypatch.setattr(collective_probe, "run_group", fails)
    assert collective_probe.take_collectives(machine, 240) == [2, 4]
    assert "no reductions among 3 processes: connection refused" in capsys.readouterr().err
    assert collective_probe.take_collectives(machine, 4) == []


def test_energy_is_counted_where_it_can_be_read(tmp_path):
    for name, microjoules in (("intel-rapl:0", 900), ("intel-rapl:1", 500), ("intel-rapl:0:0", 77)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text(str(microjoules))
        (tmp_path / name / "max_energy_range_uj").write_text("1000")
    meter = energy.Meter(str(tmp_path))
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("100")  # it started over
    (tmp_path / "intel-rapl:1" / "energy_uj").write_text("700")
    assert meter.joules() == pytest.approx(400e-6)
    assert meter.joules() == 0
    (tmp_path / "intel-rapl:1" / "energy_uj").unlink()
    assert meter.joules() is None
    assert energy.Meter(str(tmp_path / "nothing")).joules() is None


class StandInNvml:
    """As NVML answers: a GPU on one bus, its counter in millijoules."""

    def __init__(self, counts, failing=False):
        self.counts, self.failing = iter(counts), failing

    def nvmlInit_v2(self):
        return 0

    def nvmlDeviceGetHandleByPciBusId_v2(self, bus, handle):
        return 0 if bus == b"00000000:65:00.0" else 6

    def nvmlDeviceGetTotalEnergyConsumption(self, handle, millijoules):
        millijoules._obj.value = next(self.counts)
        return 3 if self.failing else 0


def test_the_energy_of_a_gpu_is_its_drivers_count():
    meter = energy.DeviceMeter("00000000:65:00.0", StandInNvml([1000, 3500, 3000, 9000]))
    assert meter.joules() == pytest.approx(2.5)
    assert meter.joules() is None  # the driver started over
    assert meter.joules() == pytest.approx(6)
    assert energy.DeviceMeter("00000000:99:00.0", StandInNvml([])).joules() is None
    assert energy.DeviceMeter("00000000:65:00.0", StandInNvml([1, 2], failing=True)).joules() is None
    assert energy.DeviceMeter(None, StandInNvml([])).joules() is None


def test_shapes_are_the_same_in_every_run():
    """Whatever the rates, as long as they are near: so that two runs can be compared point by point."""
    def drawn(flops, moved):
        rates = device_probe.coarse({"flops": flops, "bytes": moved})
        return device_probe.draw_shapes(1, "gemm_fp32", 4, 20, rates, 0.05, 1 << 25, 1 << 28)
    assert drawn(1.4e11, 3.5e10) == drawn(1.6e11, 4.1e10)
    rows = [shape["m"] for shape in drawn(1.5e11, 3.5e10)]
    assert rows.count(1) >= 1 and max(rows) > 8


def test_a_point_is_the_mean_of_its_rounds():
    planned = ("elementwise", "fp32", type("T", (), {"itemsize": 4}), {"rows": 2, "width": 3})
    point = device_probe.point_of(planned, [([1.0, 1.0, 4.0], 0.1), ([4.0, 4.0, 1.0], 0.3)])
    assert point["seconds"] == pytest.approx(2) and point["drift_log"] == pytest.approx(1.3862943611198906)
    assert point["uncertainty"] == 0.3 and point["samples"] == 6 and point["bytes"] == 72


def test_what_other_programs_take_is_known_where_the_system_says_it(tmp_path):
    place = tmp_path / "schedstat"
    place.write_text("5000000000 2500000000 77\n")
    assert waiting.Waiting(str(place)).seconds() == pytest.approx(2.5)
    for unknown in (waiting.Waiting(str(tmp_path / "nothing")), waiting.Waiting(str(tmp_path))):
        assert not unknown.is_known and unknown.seconds() == 0
    machine = device_probe.Machine(pytest.importorskip("torch"), "cpu")
    machine.waiting = type("Others", (), {"seconds": staticmethod(iter([0.0, 1e9]).__next__)})
    assert 0 < machine.seconds_of(lambda turn: None, 1) < 1  # never nothing, whatever the clocks say


def test_a_busy_machine_ends_in_time(monkeypatch):
    """Each call takes a second of a clock of its own: the first round ends when it is over by as much again."""
    torch = pytest.importorskip("torch")
    clock = iter(range(100_000))
    monkeypatch.setattr(device_probe.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(device_probe, "rough_rates", lambda *_: {"flops": 1e11, "bytes": 2e10})
    monkeypatch.setattr(device_probe, "make_call", lambda *arguments: None)
    monkeypatch.setattr(device_probe, "take_samples", lambda machine, call, seconds: ([1.0] * 5, 0.0))
    arguments = type("Arguments", (), {"seconds": 61.0, "seed": 1, "dtype": "fp32"})
    points = device_probe.take_points(device_probe.Machine(torch, "cpu"), arguments)
    assert 100 <= len(points) <= 130
    assert len({point["class"] for point in points}) == len(CLASSES)


MACHINE = {"product": "This one", "kind": "cpu", "memory_bytes": 1 << 34, "cache_bytes": 1 << 25, "units": 2,
           "torch": "2.13.0", "python": "3.11", "system": "Linux", "load": 0.1}


def stand_in_that_sleeps(folder):
    """A Python that says which machine it is on, and measures for ever."""
    python = folder / "python"
    python.write_text(f"#!/bin/sh\necho 'headroom: machine {json.dumps(MACHINE)}' >&2\nexec sleep 600\n", encoding="utf-8")
    python.chmod(0o755)
    return python


@pytest.mark.parametrize("question", [["bench", "device"], ["bench", "decode", "openai-community/gpt2"]],
                         ids=lambda words: words[1])
def test_a_foreign_calibration_is_refused_before_anything_is_measured(measured, headroom_binary, tmp_path, question):
    folder, answer = measured
    python = stand_in_that_sleeps(tmp_path)
    kept = folder / answer["calibration_file"]
    done = headroom(headroom_binary, *question, "--calibration", kept, cwd=tmp_path, timeout=60, python=python)
    assert done.returncode == 3, done.stderr
    assert f"{kept}: the calibration is of another machine" in done.stderr and "This one, 2 threads" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["python"]


def test_what_was_measured_before_is_answered_beside_a_foreign_calibration(measured, headroom_binary):
    folder, answer = measured
    foreign = json.loads((folder / answer["calibration_file"]).read_text())
    foreign["machine"]["product"] = "Another one"
    (folder / "foreign.json").write_text(json.dumps(foreign))
    done = headroom(headroom_binary, "bench", "device", "--results", answer["calibration_file"], "--calibration",
                    "foreign.json", "--json", cwd=folder)
    assert done.returncode == 5 and "foreign.json: the calibration is of another machine" in done.stderr
    shown = json.loads(done.stdout)
    assert shown["agreement"] is None and shown["classes"] == answer["classes"] and shown["points"] == answer["points"]
    for question in (["devices"], ["bench", "decode", "openai-community/gpt2", "--predict", "--batches", "1"],
                     ["fit", "openai-community/gpt2", "--batch", "1", "--seq", "64", "--search", "false"]):
        done = headroom(headroom_binary, *question, "--calibration", "foreign.json", cwd=folder)
        assert "the calibration is of another machine, Another one" in done.stderr, done.stderr


def test_a_wrong_figure_is_named_with_its_file(measured, headroom_binary):
    folder, answer = measured
    wrong = json.loads((folder / answer["calibration_file"]).read_text())
    wrong["devices"]["devices"][0]["memory_bytes"]["value"] = -1
    (folder / "wrong.json").write_text(json.dumps(wrong))
    done = headroom(headroom_binary, "devices", "--calibration", "wrong.json", cwd=folder)
    assert done.returncode == 3 and "wrong.json#/devices/devices/0/memory_bytes" in done.stderr, done.stderr


@pytest.mark.parametrize("ending, reason", [
    ("echo \"TypeError: 'x'\" >&2; exit 1", "TypeError: 'x'"),  # an exception that nobody took
    ("echo 'headroom: the device is gone' >&2; echo 'a warning' >&2; exit 3", "the device is gone"),
])
def test_a_measurement_that_fails_says_why(headroom_binary, tmp_path, ending, reason):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho 'headroom: machine {json.dumps(MACHINE)}' >&2\n{ending}\n", encoding="utf-8")
    python.chmod(0o755)
    done = headroom(headroom_binary, "bench", "device", "--quick", cwd=tmp_path, python=python)
    assert done.returncode != 0 and f"cpu: {reason}\n" in done.stderr, done.stderr


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_leaves_nobody_behind(headroom_binary, tmp_path, ending):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho $$ > "$STUB_FILE"\nexec sleep 600\n', encoding="utf-8")
    python.chmod(0o755)
    written = tmp_path / "pid"
    run = subprocess.Popen([headroom_binary, "bench", "device", "--quick"], cwd=tmp_path, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                           env={**os.environ, "HEADROOM_PYTHON": str(python), "STUB_FILE": str(written)})
    wait_for(lambda: written.exists() and written.read_text(encoding="utf-8").endswith("\n"))
    helper = int(written.read_text(encoding="utf-8"))
    run.send_signal(ending)
    spoken = run.communicate(timeout=30)[1]
    if ending == signal.SIGKILL:
        assert run.returncode == -ending
    else:
        assert run.returncode == 128 + ending
        assert "interrupted, no file was written" in spoken
    wait_for(lambda: is_over(helper))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pid", "python"]


def wait_for(is_so, seconds=20):
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_over(process):
    try:
        return ") Z " in Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:
        return True
