"""One run made of several: each stretch of it takes what it takes where nothing disturbs it.

Runs of one model do the same in the same order, so that their profiles differ in times alone. A run is a tree of events;
its marks, where events begin and end, cut it into stretches. A program that takes the processor lengthens the stretches
that it happens to hit, in another run other ones. So of each stretch the least is taken that it took in any run, and the
typical run is laid out of them; no run as a whole is a guide, since hardly one is hit nowhere.

A stretch longer than a turn of the scheduler is hit in every run, and its least still holds turns of others. How much
all of them hold is known, where the system counts what a thread waited for a core (waiting.py): the stretches would take
longer together than a run without its waiting. That is taken off the stretches longer than a turn, in proportion to what
they have beyond one. How long a turn is differs by the kernel, its load and priorities, and is measured as the runs are
made. With --threads 2 or more, waiting for the other threads is not counted, and stays.

How far that can be trusted (tests/python/test_typical_run.py, turns simulated, half to three quarters of the core others'):
turns of 1.5 ms and more leave the share of operators of 0.5 ms at its 25 %. With turns of 0.7 ms an operator of 0.5 ms is hit
in most runs, and some in all of nine: where turns differ by half the share is at most 2 points too high, and up to 9 where
they are all alike.

Invariants: (1) an event lies within its parent and behind its elder siblings; (2) two runs are of one kind if and only if
their marks name the same events in the same order; (3) the typical run has the events of the reference, each at least 0
long, and keeps (1). Cost: linear in events times runs, beside sorting a run's.
"""

import gzip
import json
import os
import statistics

LEAST_RUNS, MOST_RUNS = 3, 15
MUCH_TOO_LONG = 4       # times what there is for a setting
LEAST_OF_ONE_RUN = 5.0  # seconds, beside which what a first run does once is little
UNDER_PROFILER = ("a run takes longer than --seconds: its time is that of runs under the profiler, of a single one, without "
                  "another to warm up, where it takes four times as long")
DIGITS = 3  # of microseconds
TURN_US = 3000.0  # where none was measured: Linux's base slice is 0.7 to 3 ms by version and cores


class Node:
    def __init__(self, event, children=()):
        self.event, self.children = event, list(children)


def end_of(event):
    return event["ts"] + event["dur"]


def tree_by_time(events):
    """Of events that lie within one another: Kineto's, of one thread."""
    roots, open_nodes = [], []
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        while open_nodes and end_of(open_nodes[-1].event) <= event["ts"]:
            open_nodes.pop()
        node = Node(event)
        (open_nodes[-1].children if open_nodes else roots).append(node)
        open_nodes.append(node)
    return roots


def tree_by_order(events, is_parent):
    """Of events in the order of their ends, which hold many that take no time at all: ONNX Runtime's. A parent takes what
    began since it did."""
    roots = []
    for event in events:
        first = len(roots)
        while is_parent(event) and first > 0 and roots[first - 1].event["ts"] >= event["ts"]:
            first -= 1
        roots[first:] = [Node(event, roots[first:])]
    return roots


def marks_of(roots):
    """(event, is its end, time), in order of time; what a clock of whole microseconds puts before its elder is not."""
    marks, latest = [], float("-inf")

    def mark(event, is_end, time):
        nonlocal latest
        latest = max(latest, time)
        marks.append((event, is_end, latest))

    def walk(node):
        mark(node.event, False, node.event["ts"])
        for child in node.children:
            walk(child)
        mark(node.event, True, end_of(node.event))

    for root in roots:
        walk(root)
    return marks


def kind_of(marks):
    return [(event["name"], is_end) for event, is_end, _ in marks]


def undisturbed(runs, waited_us, turn_us):
    """The stretches of a run that nobody disturbs: runs of one kind, how long each one waited, or None, and turns."""
    lengths = [[after[2] - before[2] for before, after in zip(marks, marks[1:])] for marks in runs]
    least = [min(stretch) for stretch in zip(*lengths)]
    if waited_us is None:
        return least
    alone = statistics.median(sum(lengths_of_run) - waited for lengths_of_run, waited in zip(lengths, waited_us))
    beyond = sum(max(0.0, stretch - turn_us) for stretch in least)
    held = min(max(0.0, sum(least) - alone), beyond)
    part = held / beyond if beyond else 0.0
    return [stretch - part * max(0.0, stretch - turn_us) for stretch in least]


def compose(runs, waited_us=None, turn_us=TURN_US):
    """Lays the typical run out in the events of the first one; of how many runs it is. REQUIRES: marks, one run at least."""
    kind = kind_of(runs[0])
    alike = [place for place, marks in enumerate(runs) if kind_of(marks) == kind]
    stretches = undisturbed([runs[place] for place in alike],
                            None if waited_us is None else [waited_us[place] for place in alike], turn_us)
    time = runs[0][0][2]
    for (event, is_end, _), stretch in zip(runs[0], [0.0, *stretches]):
        time += stretch
        if is_end:
            event["dur"] = round(time - event["ts"], DIGITS)
        else:
            event["ts"] = round(time, DIGITS)
    return len(alike)


def is_all(run, seconds):
    """Whether a first run takes so long that no other one is made: warming up is a small part of it."""
    return run[1] > max(MUCH_TOO_LONG * seconds, LEAST_OF_ONE_RUN)


def repeat(once, seconds, runs=None, part=1.0, most=MOST_RUNS):
    """once() gives what a run takes, and what of it is its own, the rest being other programs'. As many runs as fit, by
    their own time, three at least; one where that is more than all of the time. Of a visit that brings what there is to
    `part` of all, as many as are missing from `runs`, to which they are added."""
    runs, own_seconds = [] if runs is None else runs, lambda: sum(own for _, own in runs)
    while not runs or (runs[0][1] <= seconds and len(runs) < part * most
                       and (len(runs) < part * LEAST_RUNS or own_seconds() < part * seconds)):
        runs.append(once())
    return runs


def write_json(value, file):
    with gzip.open(file, "wt", compresslevel=1, encoding="utf-8") as out:
        out.write(json.dumps(value))  # dump() to a file encodes in Python, seven times as slow


class Profiled:
    """Of runs under a profiler: seconds of the quickest, and those that are its own; of how many the typical run is, and
    its file; the file of the capture of its graphs."""

    def __init__(self, seconds, own_seconds):
        self.seconds, self.own_seconds, self.runs, self.typical, self.capture = seconds, own_seconds, 1, None, None
        self.all_seconds = [seconds]


class Reading:
    """How an engine's traces are read: `trace(place)` gives that of a run, once; `marks(trace)` what marks_of() takes, none where
    it is not of one thread; `document(trace, events)` a trace of these events in that one's place."""

    def __init__(self, trace, marks, document):
        self.trace, self.marks, self.document = trace, marks, document


def keep(taken, reading, machine, turn_us, file):
    """The quickest run's trace in `file`, and beside it the typical run, laid out in the quickest one's events. `taken` is as
    repeat() gives it, `turn_us` of that time or None. Of the other traces no more is held than their marks."""
    quickest = taken.index(min(taken))
    profiled = Profiled(*taken[quickest])
    profiled.all_seconds = [seconds for seconds, _ in taken]
    trace = reading.trace(quickest)
    write_json(trace, file)
    if len(taken) == 1 or machine.is_cuda:
        return profiled
    order = [quickest, *(place for place in range(len(taken)) if place != quickest)]
    runs = [reading.marks(trace if place == quickest else reading.trace(place)) for place in order]
    if not runs[0]:  # nothing can be composed
        return profiled
    waited_us = [1e6 * (taken[place][0] - taken[place][1]) for place in order] if machine.waiting.is_known else None
    profiled.runs = compose(runs, waited_us, turn_us or TURN_US)
    name = file.replace(".trace.json.gz", ".typical.trace.json.gz")
    write_json(reading.document(trace, [event for event, is_end, _ in runs[0] if not is_end]), name)
    profiled.typical = os.path.basename(name)
    return profiled
