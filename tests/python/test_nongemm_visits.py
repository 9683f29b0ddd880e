"""Settings are measured in visits that take turns: what that promises, with clocks and models that are made up."""

import json
import os
import subprocess
import sys
import types

import pytest

from headroom import nongemm_visits, typical_run

torch = pytest.importorskip("torch")


class Clock:
    """Runs take what they are told."""

    is_cuda = False
    waiting = types.SimpleNamespace(is_known=False, seconds=lambda: 0.0)

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(nongemm_visits.time, "perf_counter", lambda: self.now)


class Work:
    """Of an engine: `seconds(now)` a run."""

    notes, cache_bytes = ["as it is"], 0

    def __init__(self, clock, seconds, first=None):
        self.clock, self.seconds, self.first = clock, seconds, first

    def run(self):
        taken = self.seconds(self.clock.now)
        self.clock.now += taken
        return taken

    def profiled_once(self):
        taken = self.run()
        return taken, taken

    def end_profiling(self, taken, file):
        profiled = typical_run.Profiled(*min(taken))
        profiled.all_seconds = [seconds for seconds, _ in taken]
        return profiled

    def plain(self):
        return self.run


def job_of(clock, work, layers=None, visits=nongemm_visits.VISITS):
    return nongemm_visits.Job(clock, {}, layers, work, 2.0, visits)


def test_what_lasts_for_seconds_hits_a_visit_and_not_the_setting(monkeypatch):
    """Half as long again for the first three seconds: one visit would be all in it."""
    def seconds(now):
        return 0.375 if now < 3 else 0.25

    clock = Clock(monkeypatch)
    alone = job_of(clock, Work(clock, seconds), visits=1)
    alone.visit("a")
    assert min(alone.taken)[0] == 0.375
    clock = Clock(monkeypatch)
    job = job_of(clock, Work(clock, seconds))
    for visit in range(nongemm_visits.VISITS):
        assert job.profiled is None
        job.visit("a")
        clock.now += 5.0  # of other settings
    assert {own for _, own in job.taken} == {0.375, 0.25}
    assert sorted(job.samples.seconds)[len(job.samples.seconds) // 2] == 0.25


@pytest.mark.parametrize("a_run, profiled", [(2**-10, 15), (0.1875, 11), (0.875, 3), (1.875, 3)])
@pytest.mark.parametrize("visits", [1, nongemm_visits.VISITS])
def test_as_many_runs_whether_in_one_visit_or_in_several(monkeypatch, a_run, profiled, visits):
    clock = Clock(monkeypatch)
    job = job_of(clock, Work(clock, lambda now: a_run), visits=visits)
    for _ in range(visits):
        job.visit("a")
    assert job.profiled and job.notes == ["as it is"]
    assert len(job.taken) == profiled and job.samples.half == 0
    assert len(job.samples.seconds) == nongemm_visits.LEAST_SAMPLES * (visits if a_run < 0.2 else 1)  # sure at once


def test_each_visit_has_samples_in_the_median(monkeypatch):
    """The first one's are sure at once, and wrong."""
    clock = Clock(monkeypatch)
    job = job_of(clock, Work(clock, lambda now: 0.1875 if now < 2 else 0.125))
    for _ in range(nongemm_visits.VISITS):
        job.visit("a")
        clock.now += 1.0
    slow = sum(seconds == 0.1875 for seconds in job.samples.seconds)
    assert 0 < slow <= len(job.samples.seconds) / 2


def test_a_run_that_takes_all_of_the_time_is_made_once(monkeypatch):
    clock = Clock(monkeypatch)
    job = job_of(clock, Work(clock, lambda now: 3.0, first=(3.5, 3.5)))
    job.visit("a")
    assert job.profiled and job.taken == [(3.0, 3.0)]
    assert job.samples.seconds == [3.0] and job.samples.half is None and typical_run.UNDER_PROFILER in job.notes
    long = job_of(clock, Work(clock, lambda now: 9.0, first=(9.5, 9.4)))  # so long that the first one is all
    long.visit("a")
    assert long.taken == [(9.5, 9.4)]


def test_of_few_layers_three_runs_are_made_of_what_takes_longer(monkeypatch):
    clock = Clock(monkeypatch)
    job = job_of(clock, Work(clock, lambda now: 3.0, first=(3.5, 3.5)), layers=2, visits=1)
    job.visit("a")
    assert len(job.taken) == 3 and len(job.samples.seconds) == 3


# ---- the runner ---------------------------------------------------------------------------------

TINY = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 32,
        "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 64}
# A module of the user's that does not come back, one that takes the process with it, and one that is well.
OWN = '''
import os, signal, time
import torch

class Sleeps(torch.nn.Linear):
    def forward(self, x):
        time.sleep(600)

class Dies(torch.nn.Linear):
    def forward(self, x):
        os.kill(os.getpid(), signal.SIGKILL)

def sleeps():
    return Sleeps(8, 8), torch.rand(8, 8)

def dies():
    return Dies(8, 8), torch.rand(8, 8)

def well():
    return torch.nn.Linear(8, 8), torch.rand(8, 8)
'''


def setting(model, engine="pytorch", quantize="none", batch=1):
    return {"id": f"{model}/{engine}/{quantize}/{batch}", "model": model, "engine": engine, "phase": "forward",
            "batch": batch, "dtype": "fp32", "quantize": quantize, "fusion": "none"}


@pytest.fixture
def measuring(tmp_path, monkeypatch):
    """Four settings of a small model, a function that measures them, and what it visited and reported, in order."""
    pytest.importorskip("transformers")
    from headroom import nongemm_probe
    visited, reported, visit = [], [], nongemm_visits.Job.visit

    def noted(job, file):
        visited.append(job.setting["id"])
        visit(job, file)

    def measure():
        with torch.inference_mode():
            nongemm_probe.Session(nongemm_probe.Machine(torch, "cpu"), spec).run()

    monkeypatch.setattr(nongemm_visits.Job, "visit", noted)
    monkeypatch.setattr(nongemm_probe, "report", lambda kind, members: reported.append(members["id"]))
    settings = [setting("tiny", quantize=quantize, batch=batch) for quantize in ("none", "int8") for batch in (1, 2)]
    spec = {"model": {"config": TINY, "inputs": {"tokens": 8}}, "seconds": 0.3, "traces": str(tmp_path), "settings": settings}
    return types.SimpleNamespace(run=measure, ids=[one["id"] for one in settings], visited=visited, reported=reported)


def test_settings_of_a_model_take_turns(measuring):
    measuring.run()
    a, b, c, d = measuring.ids
    assert measuring.visited == [a, a, b, a, b, c, b, c, d, c, d, d]
    assert measuring.reported == [a, b, c, d]


def test_what_is_over_early_is_reported_in_its_turn(measuring, monkeypatch):
    a, b, c, d = measuring.ids
    noted = nongemm_visits.Job.visit

    def over_at_once(job, file):
        job.visits = 1 if job.setting["id"] == b else job.visits
        noted(job, file)

    monkeypatch.setattr(nongemm_visits.Job, "visit", over_at_once)
    measuring.run()
    assert measuring.visited == [a, a, b, a, c, c, d, c, d, d]
    assert measuring.reported == [a, b, c, d]


def test_without_room_beside_each_other_each_is_visited_once(measuring, monkeypatch):
    from headroom import nongemm_probe
    monkeypatch.setattr(nongemm_probe, "ROOM_LEFT", 2.0)
    measuring.run()
    assert measuring.visited == measuring.reported == measuring.ids


def test_what_fails_beside_others_is_tried_alone(measuring, monkeypatch):
    from headroom import nongemm_probe
    plain, opened = nongemm_probe.Session.open, []

    def crowded(session, setting, layers):
        opened.append(setting["id"])
        if opened.count(measuring.ids[2]) == 1 and setting["id"] == measuring.ids[2]:
            raise MemoryError("beside others")
        return plain(session, setting, layers)

    monkeypatch.setattr(nongemm_probe.Session, "open", crowded)
    measuring.run()
    a, b, c, d = measuring.ids
    assert opened == [a, b, c, c, d] and measuring.reported == [a, b, c, d]


def test_what_a_model_does_to_its_process_is_its_own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    parts = [{"model": {"function": f"{tmp_path}/own.py:{name}"}, "most_seconds": most, "settings": [setting(name)]}
             for name, most in (("sleeps", 1), ("dies", 60), ("well", 60))]
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"schema": "headroom.nongemm_spec/2", "on": "cpu", "seconds": 0.01, "threads": 1,
                                "traces": str(tmp_path), "parts": parts}))
    room = tmp_path / "room"
    room.mkdir()
    done = subprocess.run([sys.executable, "-m", "headroom.nongemm_probe", "--spec", str(spec)], capture_output=True, text=True,
                          timeout=120, check=False, cwd=os.path.dirname(os.path.dirname(nongemm_visits.__file__)),
                          env={**os.environ, "TMPDIR": str(room)})
    assert done.returncode == 0, done.stderr
    said = [line.split(" ", 2)[1:] for line in done.stderr.splitlines() if line.startswith("headroom: ")]
    ended = [json.loads(words) for kind, words in said if kind == "ended"]
    assert ended == [{"part": 0, "exit_code": 137, "is_late": True}, {"part": 1, "exit_code": 137, "is_late": False},
                     {"part": 2, "exit_code": 0, "is_late": False}]
    measured = [json.loads(words) for kind, words in said if kind == "measured"]
    assert [(one["id"], one["status"]) for one in measured] == [("well/pytorch/none/1", "measured")]
    assert not list(room.iterdir())  # nothing of those that were killed


def test_a_model_that_takes_its_process_with_it_takes_no_other(headroom_binary, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    done = subprocess.run([headroom_binary, "bench", "nongemm", "own.py:dies", "own.py:well", "--engine", "pytorch", "--batches", "1",
                           "--quantize", "none", "--seconds", "0.05", "--threads", "1", "--json"], cwd=tmp_path, capture_output=True,
                          text=True, timeout=300, check=False, env={**os.environ, "HEADROOM_PYTHON": sys.executable})
    assert done.returncode == 5, done.stderr
    answer = json.loads(done.stdout)
    assert [row["setting"]["model"] for row in answer["rows"]] == ["own.py:well"]
    assert [(one["setting"]["model"], one["reason"]) for one in answer["not_measured"]] == [
        ("own.py:dies", "the system ended the runner, as it does where memory runs out")]
