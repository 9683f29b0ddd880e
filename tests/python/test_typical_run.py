"""The typical run that `bench nongemm` composes of several: by invariants, and of runs whose truth is known."""

import copy
import gzip
import json
import os
import random
import subprocess
import sys
import time
import types

import pytest

from headroom import typical_run, waiting

PARENTS = ("run", "half")


def events(durations, gap=0.0):
    """A run of two halves, each of as many operators as there are durations; in the order of their ends."""
    made, time = [], 100.0
    start = time
    for half in range(2):
        half_start = time
        for place, duration in enumerate(durations):
            time += gap
            made.append({"name": f"operator {place}", "ts": time, "dur": duration})
            time += duration
        made.append({"name": "half", "ts": half_start, "dur": time - half_start})
    made.append({"name": "run", "ts": start, "dur": time - start})
    return made


def marks(made, by_order=True):
    roots = (typical_run.tree_by_order(made, lambda event: event["name"] in PARENTS) if by_order
             else typical_run.tree_by_time(made))
    return typical_run.marks_of(roots)


def disturbed(durations, generator, turn, others, uneven=0.0):
    """Of each duration what it takes while others have the core for `others` behind each turn; the waiting, and the turns."""
    made, waited, turns, left = [], 0.0, 0, generator.uniform(0, turn)
    for duration in durations:
        hits, rest = 0, duration
        while rest > left:
            rest, left, hits = rest - left, turn * generator.uniform(1 - uneven, 1 + uneven), hits + 1
        left -= rest
        made.append(duration + hits * others)
        waited, turns = waited + hits * others, turns + hits
    return made, waited, turns


def span(marks_of_run):
    return marks_of_run[-1][2] - marks_of_run[0][2]


@pytest.mark.parametrize("by_order", [True, False])
def test_operators_lie_in_their_parents(by_order):
    found = [(event["name"], is_end) for event, is_end, _ in marks(events([1.0, 2.0], gap=0.5), by_order)]
    half = [("half", False), ("operator 0", False), ("operator 0", True), ("operator 1", False), ("operator 1", True),
            ("half", True)]
    assert found == [("run", False), *half, *half, ("run", True)]


def test_operators_that_take_no_time_keep_their_order():
    found = [event["name"] for event, is_end, _ in marks(events([0.0, 0.0, 4.0])) if not is_end]
    assert found == ["run", *["half", "operator 0", "operator 1", "operator 2"] * 2]


def test_a_hit_in_each_run_is_in_none_of_the_typical_one():
    runs = []
    for hit in range(4):
        durations = [10.0, 20.0, 5.0, 40.0]
        durations[hit] += 500.0
        runs.append(marks(events(durations, gap=1.0)))
    assert typical_run.compose(runs) == 4
    composed = {event["name"]: event["dur"] for event, is_end, _ in runs[0] if is_end}
    assert composed == pytest.approx({"operator 0": 10, "operator 1": 20, "operator 2": 5, "operator 3": 40, "half": 79,
                                      "run": 158})


def test_of_one_run_nothing_changes():
    made = events([3.0, 0.0, 7.0], gap=0.25)
    before = copy.deepcopy(made)
    assert typical_run.compose([marks(made)]) == 1
    assert made == before


def test_a_run_of_another_kind_is_left_out():
    shorter, other = events([1.0, 1.0]), events([9.0, 9.0, 9.0])
    runs = [marks(other), marks(shorter), marks(events([8.0, 9.0, 9.0]))]
    assert typical_run.compose(runs) == 2
    assert [event["dur"] for event in other if event["name"].startswith("operator")] == [8.0, 9.0, 9.0] * 2


def test_what_lies_within_stays_within():
    generator = random.Random(1)
    for _ in range(200):
        runs = [marks(events([generator.choice([0.0, generator.uniform(0, 9e3)]) for _ in range(5)], generator.random()))
                for _ in range(generator.randint(1, 6))]
        typical_run.compose(runs, [generator.uniform(0, 1e4) for _ in runs])
        times = [event["ts"] if not is_end else event["ts"] + event["dur"] for event, is_end, _ in runs[0]]
        assert all(after >= before - 1e-6 for before, after in zip(times, times[1:]))


TRUTH = ([60_000.0] + [500.0] * 40) * 2


def share_beside_others(turn, others, uneven, seed, assumed=None):
    """Half, or three quarters, of the core is others'; a long product and many short operators share the rest. Of the short
    ones the share, of all the seconds beside the truth, and what they are without the waiting."""
    generator, runs, waited, turns = random.Random(seed), [], [], 0
    for _ in range(9):
        durations, waiting, hits = disturbed(TRUTH, generator, turn, others, uneven)
        made, time = [], 0.0
        for place, duration in enumerate(durations):
            made.append({"name": f"operator {place}", "ts": time, "dur": duration})
            time += duration
        runs.append(marks(made))
        waited.append(waiting)
        turns += hits
    plain = [min(dur) for dur in zip(*[[after[2] - before[2] for before, after in zip(run, run[1:])] for run in runs])]
    typical_run.compose(runs, waited, assumed or 9 * sum(TRUTH) / turns)  # as waiting.Turns measures it
    found = [event["dur"] for event, is_end, _ in runs[0] if is_end]
    short = sum(dur for dur, truth in zip(found, TRUTH) if truth == 500)
    return 100 * short / sum(found), sum(found) / sum(TRUTH), sum(plain) / sum(TRUTH)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("turn, uneven, bias", [(700.0, 0.0, 9.0), (700.0, 0.5, 2.0), (1500.0, 0.0, 0.1), (1500.0, 0.5, 0.1),
                                                (3000.0, 0.0, 0.1), (3000.0, 0.5, 0.1), (6000.0, 0.0, 0.1), (6000.0, 0.5, 0.1)])
def test_long_operators_lose_the_turns_of_others(turn, times, uneven, bias):
    """As far as the file promises."""
    for seed in range(10):
        share, total, plain = share_beside_others(turn, times * turn, uneven, seed)
        assert 25 - 0.1 <= share <= 25 + bias
        assert total == pytest.approx(1, rel=0.01)
        assert plain > 1.3  # which is why the waiting is asked for


def test_a_turn_that_is_not_measured_is_not_to_be_trusted():
    supposed = max(share_beside_others(700.0, 2100.0, 0.5, seed, typical_run.TURN_US)[0] for seed in range(10))
    measured = max(share_beside_others(700.0, 2100.0, 0.5, seed)[0] for seed in range(10))
    assert measured < 27 < supposed


def test_turns_are_those_that_others_end():
    """Beside a loop on the same core, which ends them; where one thread sleeps, it ends them itself."""
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("threads are not bound to cores here")
    before = os.sched_getaffinity(0)
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        core = {min(before)}
        os.sched_setaffinity(0, core)
        os.sched_setaffinity(other.pid, core)
        turns, deadline = waiting.Turns(), time.monotonic() + 0.5
        while time.monotonic() < deadline:
            pass
        mean_us = turns.mean_us()
    finally:
        other.kill()
        other.wait()
        os.sched_setaffinity(0, before)
    assert mean_us is not None and 100 < mean_us < 250_000
    turns = waiting.Turns()
    turns.read = lambda: turns.start
    assert turns.mean_us() is None


def test_as_many_runs_as_fit():
    def clock(*seconds):
        left = list(seconds)
        return lambda: (lambda own: (2 * own, own))(left.pop(0) if len(left) > 1 else left[0])
    assert len(typical_run.repeat(clock(3.0), seconds=2)) == 1
    assert len(typical_run.repeat(clock(1.5), seconds=2)) == 3
    assert len(typical_run.repeat(clock(0.4), seconds=2)) == 5
    assert len(typical_run.repeat(clock(0.001), seconds=2)) == typical_run.MOST_RUNS
    assert len(typical_run.repeat(clock(0.001), seconds=2, most=4)) == 4


class Alone:
    is_cuda = False
    waiting = types.SimpleNamespace(is_known=False)


def test_it_is_kept_beside_the_trace(tmp_path):
    file, asked = str(tmp_path / "a.trace.json.gz"), []
    traces = [events([2.0]), events([1.0]), events([3.0])]

    def trace(place):
        asked.append(place)
        return traces[place]

    def kept(reading):
        return typical_run.keep([(3.0, 2.0), (2.0, 1.0), (4.0, 2.0)], reading, Alone, None, file)

    none = kept(typical_run.Reading(trace, lambda made: [], None))
    assert none.typical is None and none.runs == 1 and [one.name for one in tmp_path.iterdir()] == ["a.trace.json.gz"]
    assert (none.seconds, none.own_seconds, none.all_seconds) == (2.0, 1.0, [3.0, 2.0, 4.0])
    asked.clear()
    profiled = kept(typical_run.Reading(trace, marks, lambda of, made: {"of": len(of), "events": made}))
    assert sorted(asked) == [0, 1, 2] and asked[0] == 1  # once each
    with gzip.open(file, "rt") as quickest, gzip.open(tmp_path / profiled.typical, "rt") as typical:
        assert [event["dur"] for event in json.load(quickest)] == [1.0, 1.0, 1.0, 1.0, 2.0]
        assert [event["dur"] for event in json.load(typical)["events"]] == [2.0, 1.0, 1.0, 1.0, 1.0]
    assert profiled.runs == 3
