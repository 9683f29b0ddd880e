"""The typical run that `bench nongemm` composes of several: by invariants, and of runs whose truth is known."""

import copy
import gzip
import json
import random

import pytest

from headroom import typical_run

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


def disturbed(durations, generator, turn, others):
    """Of each duration what it takes while others have the core for `others` behind each turn; and the waiting."""
    made, waited, left = [], 0.0, generator.uniform(0, turn)
    for duration in durations:
        hits, rest = 0, duration
        while rest > left:
            rest, left, hits = rest - left, turn, hits + 1
        left -= rest
        made.append(duration + hits * others)
        waited += hits * others
    return made, waited


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


@pytest.mark.parametrize("others", [3000.0, 9000.0])
def test_long_operators_lose_the_turns_of_others(others):
    """Half, or three quarters, of the core is others'; a long product and many short operators share the rest."""
    truth = [60_000.0] + [500.0] * 40
    generator = random.Random(7)
    runs, waited = [], []
    for _ in range(9):
        durations, waiting = disturbed(truth * 2, generator, 3000.0, others)
        made, time = [], 0.0
        for place, duration in enumerate(durations):
            made.append({"name": f"operator {place}", "ts": time, "dur": duration})
            time += duration
        runs.append(marks(made))
        waited.append(waiting)
    typical_run.compose(runs, waited)
    found = [event["dur"] for event, is_end, _ in runs[0] if is_end]
    share = 100 * sum(dur for dur in found if dur < 3000) / sum(found)
    assert share == pytest.approx(25, abs=1.5)
    assert sum(found) == pytest.approx(2 * sum(truth), rel=0.05)
    plain = [min(dur) for dur in zip(*[[after[2] - before[2] for before, after in zip(run, run[1:])] for run in runs])]
    assert sum(plain) > 1.3 * 2 * sum(truth)  # which is why the waiting is asked for


def test_as_many_runs_as_fit():
    def clock(*seconds):
        left = list(seconds)
        return lambda: (lambda own: (2 * own, own))(left.pop(0) if len(left) > 1 else left[0])
    assert len(typical_run.repeat(clock(3.0), seconds=2)) == 1
    assert len(typical_run.repeat(clock(1.5), seconds=2)) == 3
    assert len(typical_run.repeat(clock(0.4), seconds=2)) == 5
    assert len(typical_run.repeat(clock(0.001), seconds=2)) == typical_run.MOST_RUNS


def test_it_is_kept_beside_the_trace(tmp_path):
    file = str(tmp_path / "a.trace.json.gz")
    profiled = typical_run.Profiled(1.0, 0.5)
    profiled.keep_typical([[]], None, file, lambda made: made)
    assert profiled.typical is None and profiled.runs == 1 and not list(tmp_path.iterdir())
    profiled.keep_typical([marks(events([2.0])), marks(events([1.0]))], None, file, lambda made: {"events": made})
    with gzip.open(tmp_path / profiled.typical, "rt") as kept:
        assert [event["dur"] for event in json.load(kept)["events"]] == [2.0, 1.0, 1.0, 1.0, 1.0]
    assert profiled.runs == 2
