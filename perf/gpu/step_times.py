"""Step times under PyTorch's allocator and Headroom's, taken in turns on one GPU.

A device's clock drifts by more than an allocator costs. So both processes of a training are there at once, warm, the
plan made, and wait; then they take a few steps in turns, the other one still, who begins changing from round to round.
What counts is the ratio within a round, of medians of steps, and how it varies over rounds.

The trainings of allocator.py as people train: PyTorch's choice of attention, no deterministic mode.

    python3 perf/gpu/step_times.py --out DIR --rounds 10

Writes DIR/times.json (every step of every round) and prints a table. Exit code 0: all ran; 4: no GPU here; 5: the time
was over or one failed.
"""

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import select
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import allocator  # noqa: E402

# Model, pattern, batch, sequence: large enough that the host, which wavers, is ahead of the device; two of each fit into 80 GB.
# The mixture's steps wait for the device at each expert, and are the host's at any size.
TRAININGS = (("gpt2", "recompute", 16, 1024), ("llama", "plain", 8, 1024), ("llama", "zero", 8, 1024), ("mixtral", "plain", 2, 1024))
ALLOCATORS = ("default", "headroom")
WARM_UP = 24  # steps: a plan is made and serves
LEAD = 2      # steps of a turn that are not counted


# The worker: imported, it waits for a line on its standard input; warm, for numbers: it makes as many steps, and tells
# their milliseconds.

def turn(torch, training, steps, cuda):
    def now():
        if not cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    marks = [now()]
    for _ in range(steps):
        training.step()
        marks.append(now())
    if cuda:
        torch.cuda.synchronize()
    return [round(begin.elapsed_time(end) if cuda else (end - begin) * 1e3, 4) for begin, end in zip(marks, marks[1:])]


def work(cell, device, tiny):
    import torch
    import transformers  # noqa: F401  what takes long, before it is waited for

    def tell(**what):
        print(json.dumps(what), flush=True)

    cuda = device == "cuda"
    tell(imported=True)
    if not sys.stdin.readline():
        return
    training = allocator.Training(torch, cell, device, tiny)
    tell(warm_up_ms=turn(torch, training, cell.steps, cuda))
    for line in sys.stdin:
        tell(step_ms=turn(torch, training, int(line), cuda))
    tell(**allocator.peaks(torch, cuda), gpu=torch.cuda.get_device_name() if cuda else "cpu")


# The parent.

class Worker:
    """A process of a training under one allocator."""

    def __init__(self, cell, arguments, out):
        self.cell, self.answer = cell, out / f"{cell.model}-{cell.pattern}-{cell.allocator}.json"
        self.log = open(self.answer.with_suffix(".log"), "w")
        self.process = subprocess.Popen(
            allocator.command_of(cell, arguments, self.answer, __file__), env=allocator.environment_of(cell, out),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)

    def told(self, seconds):
        """What it says next; nothing where it has ended or says nothing for so long."""
        ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, seconds))
        line = self.process.stdout.readline() if ready else ""
        return json.loads(line) if line.strip() else {}

    def ask(self, word):
        with contextlib.suppress(BrokenPipeError):  # it has ended, and will tell nothing
            self.process.stdin.write(f"{word}\n")
            self.process.stdin.flush()

    def steps(self, count, seconds):
        """Milliseconds of so many steps; none where it has ended."""
        self.ask(count)
        return self.told(seconds).get("step_ms", [])

    def end(self):
        """Its peaks, and what `headroom run` said of it."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        last = self.told(20)
        self.process.kill() if not last else self.process.wait(20)
        self.log.close()
        return {**last, "headroom_run": json.loads(self.answer.read_text()) if self.answer.exists() else None}


def workers_of(training, arguments, out):
    model, pattern, batch, seq = training
    return [Worker(allocator.Cell(model, pattern, which, batch, seq, WARM_UP, deterministic=False), arguments, out)
            for which in ALLOCATORS]


def measure(workers, arguments, until):
    """A row an allocator, with the steps of each round."""
    for worker in workers:
        worker.ask("begin")
    rows = [{**dataclasses.asdict(worker.cell), **worker.told(until - time.monotonic()), "rounds": []}
            for worker in workers]
    for turns in range(arguments.rounds):
        if time.monotonic() > until or not all(row.get("warm_up_ms") for row in rows):
            break
        for place in range(len(workers)):
            which = (turns + place) % len(workers)
            taken = workers[which].steps(LEAD + arguments.steps, 60)
            rows[which]["rounds"].append(taken[LEAD:])
    for row, worker in zip(rows, workers):
        row.update(worker.end())
        row["status"] = "ok" if row["rounds"] and all(row["rounds"]) else f"see {worker.log.name}"
    return rows


def medians(row):
    return [statistics.median(steps) for steps in row["rounds"] if steps]


def ratios(row, base):
    """Of a round's medians to those of the same round under PyTorch's allocator."""
    return sorted(mine / theirs for mine, theirs in zip(medians(row), medians(base)))


def table(rows):
    lines = [f"{'model':9}{'pattern':11}{'allocator':12}{'step ms':>9}{'to default, %':>15}{'least':>8}{'most':>8}  status"]
    base = None
    for row in rows:
        base = row if row["allocator"] == "default" else base
        of = [100 * (ratio - 1) for ratio in ratios(row, base)]
        times = medians(row)
        figures = (f"{statistics.median(times):9.2f}{statistics.median(of):15.2f}{of[0]:8.2f}{of[-1]:8.2f}"
                   if times and of else " " * 40)
        lines.append(f"{row['model']:9}{row['pattern']:11}{row['allocator']:12}{figures}  {row['status']}")
    return "\n".join(lines) + "\n"


def run_all(arguments):
    if arguments.device == "cuda" and not Path("/proc/driver/nvidia").exists():
        print("no NVIDIA driver here", file=sys.stderr)
        return 4
    out, until, rows = Path(arguments.out), time.monotonic() + arguments.seconds, []
    out.mkdir(parents=True, exist_ok=True)
    planned = [workers_of(training, arguments, out) for training in TRAININGS if arguments.only in (training[0], "")]
    for worker in itertools.chain(*planned):
        worker.told(until - time.monotonic())  # that it is imported: nothing else runs while steps are timed
    for workers in planned:
        if time.monotonic() < until:
            rows += measure(workers, arguments, until)
            (out / "times.json").write_text(json.dumps(rows, indent=1) + "\n")
    print(table(rows))
    for worker in itertools.chain(*planned[len(rows) // len(ALLOCATORS):]):
        worker.end()
    whole = len(rows) == len(planned) * len(ALLOCATORS)
    return 0 if whole and all(row["status"] == "ok" for row in rows) else 5


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=os.environ.get("OUT", "times_out"))
    parser.add_argument("--headroom", default=allocator.REPO / "headroom", help="the program")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=6, help="that count, of a turn")
    parser.add_argument("--only", default="", help="one model")
    parser.add_argument("--seconds", type=float, default=540, help="begin no round after that")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true", help="tiny models, to try the script")
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    return parser.parse_args(words)


def main(words=None):
    arguments = parse(words)
    if arguments.worker:
        work(allocator.Cell(**json.loads(arguments.worker)), arguments.device, arguments.tiny)
        return 0
    return run_all(arguments)


if __name__ == "__main__":
    sys.exit(main())
