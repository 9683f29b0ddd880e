"""Side-by-side reading of two memory traces: one line an operator, and where they first part.

Two traces of the same step name their operators differently and may split one operator's
allocations over several events, or the reverse. What has to agree is the sequence of allocated
and released byte counts, so both are flattened into signed changes: +bytes for each allocation,
-bytes for each release, in order; releases between the same two allocations form a set, since
their order among themselves changes no figure. Needs no torch. Cost: linear in the number of
events.

Use: `python -m headroom.trace_compare expected.json actual.json`, exit code 1 where they differ;
`--step N` chooses the step of an oracle trace (default 1, steady state), `--phase P` one phase.
"""

import argparse
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Block:
    """One allocation and the releases that follow it before the next one."""

    allocated: int
    label: str
    live: int
    released: list = field(default_factory=list)

    def key(self):
        return (self.allocated, tuple(sorted(self.released)))


@dataclass
class Comparison:
    """`equal`, and where not: the index of the first differing block and a text about it."""

    equal: bool
    first_divergence: int = -1
    expected_live: int = 0
    actual_live: int = 0
    expected_peak: int = 0
    actual_peak: int = 0
    report: str = ""


def events_of(trace, step=1, phase=""):
    """The events of a headroom.events/1 object, or of one step of a headroom.oracle/1 trace
    (step -1: construction)."""
    if "steps" in trace:
        if step < 0:
            events = trace["construct"]["events"]
        else:
            events = trace["steps"][min(step, len(trace["steps"]) - 1)]["events"]
    else:
        events = trace["events"]
    return [e for e in events if not phase or e.get("phase") == phase]


def start_bytes(trace, step=1):
    if "steps" in trace:
        return 0 if step < 0 else trace["steps"][min(step, len(trace["steps"]) - 1)][
            "live_at_start_bytes"]
    if "live_at_start_bytes" in trace:
        return trace["live_at_start_bytes"]
    for event in trace["events"]:
        return event["live"] - sum(event["allocs"])
    return 0


def label_of(event):
    return f'{event.get("phase", "")}:{event.get("module", "")}:{event["op"]}'


def flatten(events, start=0):
    """Blocks of the events. Zero-byte allocations are left out: no allocator ever sees them."""
    blocks = [Block(0, "start", start)]
    live = start
    for event in events:
        for nbytes in event["allocs"]:
            if nbytes:
                live += nbytes
                blocks.append(Block(nbytes, label_of(event), live))
        for nbytes in event["frees"]:
            if nbytes:
                live -= nbytes
                blocks[-1].released.append(nbytes)
    return blocks


def _line(index, block, mark):
    released = ",".join(str(n) for n in sorted(block.released))
    return (f"{mark}{index:6d} live {block.live:>14d}  +{block.allocated:<12d} "
            f"-[{released}]  {block.label}")


def compare_blocks(expected, actual, context=4):
    """Aligns from the front; the first block whose allocation or releases differ is the answer."""
    peak_expected = max(b.live for b in expected)
    peak_actual = max(b.live for b in actual)
    limit = min(len(expected), len(actual))
    index = next((i for i in range(limit) if expected[i].key() != actual[i].key()), limit)
    if index == limit and len(expected) == len(actual):
        return Comparison(True, -1, expected[-1].live, actual[-1].live, peak_expected, peak_actual,
                          f"equal: {len(expected)} blocks, peak {peak_expected} bytes")
    lines = [f"first divergence at block {index} of {len(expected)} expected, {len(actual)} "
             f"actual; "
             f"peak expected {peak_expected}, actual {peak_actual} "
             f"({peak_actual - peak_expected:+d})"]
    for side, blocks in (("expected", expected), ("actual", actual)):
        lines.append(f"--- {side}")
        for i in range(max(0, index - context), min(len(blocks), index + context + 1)):
            lines.append(_line(i, blocks[i], ">" if i == index else " "))
    lines.append(_explain(expected, actual, index))
    return Comparison(False, index,
                      expected[index].live if index < len(expected) else 0,
                      actual[index].live if index < len(actual) else 0,
                      peak_expected, peak_actual, "\n".join(lines))


def _explain(expected, actual, index):
    if index >= len(expected):
        more = actual[index]
        return f"the actual trace goes on: {more.label} allocates {more.allocated}"
    if index >= len(actual):
        return f"the actual trace ends; missing: {expected[index].label}"
    one, two = expected[index], actual[index]
    if one.allocated != two.allocated:
        return (f"allocation differs: expected {one.allocated} ({one.label}), "
                f"actual {two.allocated} ({two.label})")
    late = sorted(one.released)
    for nbytes in two.released:
        if nbytes in late:
            late.remove(nbytes)
    early = sorted(two.released)
    for nbytes in one.released:
        if nbytes in early:
            early.remove(nbytes)
    return (f"releases after {one.label} differ: not released by actual {late}, "
            f"released by actual alone {early}")


def compare(expected, actual, step=1, phase="", context=4):
    """Compares two trace objects (or paths). Returns a Comparison."""
    if not isinstance(expected, dict):
        expected = json.loads(Path(expected).read_text(encoding="utf-8"))
    if not isinstance(actual, dict):
        actual = json.loads(Path(actual).read_text(encoding="utf-8"))
    one = flatten(events_of(expected, step, phase), start_bytes(expected, step))
    two = flatten(events_of(actual, step, phase), start_bytes(actual, step))
    return compare_blocks(one, two, context)


def allocation_differences(expected, actual):
    """Multisets of allocation sizes that only one side has: a first look before order matters."""
    counts = {}
    for sign, blocks in ((1, expected), (-1, actual)):
        for block in blocks:
            counts[block.allocated] = counts.get(block.allocated, 0) + sign
    return {size: count for size, count in sorted(counts.items()) if count}


def dump_events(events):
    """One line an event: live, +allocations, -releases, phase, module, operator."""
    lines = []
    for event in events:
        grown = "".join(f" +{n}" for n in event["allocs"])
        shrunk = "".join(f" -{n}" for n in event["frees"])
        module = event.get("module", "") or "."
        lines.append(f'{event["live"]:>12d} {event["phase"]:9s} {module:40s} '
                     f'{event["op"]:44s}{grown}{shrunk}')
    return lines


def dump_text(trace):
    """The whole trace as text, a heading before construction and before each step."""
    if "steps" not in trace:
        return "\n".join(dump_events(trace["events"])) + "\n"
    lines = [f'# {trace["model_type"]} torch {trace["versions"]["torch"]} '
             f'transformers {trace["versions"]["transformers"]}',
             f'# saved for backward {trace.get("saved_for_backward_bytes", 0)} bytes '
             f'(with parameters {trace.get("saved_for_backward_with_parameters_bytes", 0)})',
             f'# construct: {trace["construct"]["live_bytes"]} bytes']
    for number, step in enumerate(trace["steps"], start=1):
        peak = step["peak"]
        lines.append(f'# step {number}: start {step["live_at_start_bytes"]} end '
                     f'{step["live_at_end_bytes"]} peak {peak["bytes"]} at '
                     f'{peak.get("phase", "")}:{peak.get("module", "")}:{peak.get("op", "")}')
        lines.extend(dump_events(step["events"]))
    return "\n".join(lines) + "\n"


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m headroom.trace_compare")
    parser.add_argument("expected")
    parser.add_argument("actual", nargs="?", default="", help="absent: dump the first as text")
    parser.add_argument("--step", type=int, default=1, help="0: first step, 1: steady, -1: build")
    parser.add_argument("--phase", default="")
    parser.add_argument("--context", type=int, default=4)
    arguments = parser.parse_args(argv)
    expected = json.loads(Path(arguments.expected).read_text(encoding="utf-8"))
    if not arguments.actual:
        print(dump_text(expected), end="")
        return 0
    actual = json.loads(Path(arguments.actual).read_text(encoding="utf-8"))
    outcome = compare(expected, actual, arguments.step, arguments.phase, arguments.context)
    print(outcome.report)
    if not outcome.equal:
        one = flatten(events_of(expected, arguments.step, arguments.phase))
        two = flatten(events_of(actual, arguments.step, arguments.phase))
        print("allocation sizes by count, expected minus actual:", allocation_differences(one, two))
    return 0 if outcome.equal else 1


if __name__ == "__main__":
    sys.exit(main())
