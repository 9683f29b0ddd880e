"""The largest micro-batch that trains within a limit, under PyTorch's allocator, expandable segments and Headroom's.

The trainings of allocator.py at a shorter sequence, so that batches are fine steps. Each process may have
so many GiB (`torch.cuda.set_per_process_memory_fraction`: beyond it both allocators do as on a smaller GPU, which is
to give back what they have cached, and then to raise), so that searches go on beside each other. A batch counts
if all its steps end.

    python3 perf/gpu/largest_batch.py --out DIR

Writes DIR/largest.json (by training and allocator, the batch and every try) and prints a table. Exit code 0: all were
found; 4: no GPU here; 5: the time was over, or a try failed for another reason than memory.
"""

import argparse
import concurrent.futures
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import allocator  # noqa: E402

# Model, pattern, tokens of a sequence, GiB that a process may have, and the batch that is tried first.
TRAININGS = (("gpt2", "recompute", 256, 6, 20), ("llama", "plain", 128, 11, 24), ("mixtral", "plain", 128, 11, 16))
STEPS = allocator.WARM_UP + 6


class Search:
    """For the largest batch that fits. next() is the one to try, or None at the end; take() what became of it.

    Grows along the line through the last two peaks while that leads anywhere, by a step that doubles where it does
    not, and by halves between what fits and what does not."""

    def __init__(self, first, limit):
        self.fits, self.fails, self.limit, self.step, self.first = 0, None, limit, 1, first
        self.points = []  # (batch, reserved bytes)

    def next(self):
        if self.fails is not None and self.fails - self.fits <= 1:
            return None
        if not self.points:
            return self.first if self.fails is None else self.fails // 2
        guess = self._along_the_line() if len(self.points) > 1 else self.fits + max(1, self.fits // 4)
        if guess <= self.fits:
            guess, self.step = self.fits + self.step, self.step * 2
        if self.fails is not None and guess >= self.fails:
            guess = (self.fits + self.fails) // 2 if self.step > 1 else self.fails - 1
        return guess

    def _along_the_line(self):
        (first, low), (last, high) = self.points[-2:]
        return self.fits if high <= low else int(last + (self.limit - high) * (last - first) / (high - low))

    def take(self, batch, reserved_bytes):
        """reserved_bytes: None where it did not fit."""
        if reserved_bytes is None:
            self.fails, self.step = batch, self.step * 2
        else:
            self.fits = batch
            self.points.append((batch, reserved_bytes))


def find(training, which, arguments, out, began):
    """The row of a search: the batch, or why there is none."""
    model, pattern, seq, gib, first = training
    limit = int((arguments.limit_gib or gib) * 2**30)
    search, tries, status = Search(first, limit), [], "ok"
    while (batch := search.next()) is not None:
        if time.monotonic() - began > arguments.seconds:
            status = "the time was over"
            break
        cell = allocator.Cell(model, pattern, which, batch, seq, STEPS, limit)
        row = allocator.run_cell(cell, arguments, out)
        lacked = "OutOfMemoryError" in row["status"]
        tries.append({name: row.get(name) for name in
                      ("batch", "status", "peak_allocated_bytes", "peak_reserved_bytes", "retries")})
        if row["status"] != "ok" and not lacked:
            status = row["status"]
            break
        search.take(batch, None if lacked else row["peak_reserved_bytes"])
    return {"model": model, "pattern": pattern, "allocator": which, "seq": seq, "limit_bytes": limit,
            "largest_batch": search.fits, "least_that_failed": search.fails, "status": status, "tries": tries}


def table(rows):
    lines = [f"{'model':9}{'pattern':11}{'allocator':12}{'largest batch':>14}{'fails':>7}{'tries':>7}  status"]
    lines += [f"{row['model']:9}{row['pattern']:11}{row['allocator']:12}{row['largest_batch']:14}"
              f"{row['least_that_failed'] or '':>7}{len(row['tries']):7}  {row['status']}" for row in rows]
    return "\n".join(lines) + "\n"


def run_all(arguments):
    if not Path("/proc/driver/nvidia").exists():
        print("no NVIDIA driver here", file=sys.stderr)
        return 4
    out, began = Path(arguments.out), time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    rows, jobs = [], [(training, which) for training in TRAININGS for which in allocator.ALLOCATORS]

    def work(job):
        training, which = job
        folder = out / f"{training[0]}-{training[1]}-{which}"  # of its own: plans of one are none of another's
        folder.mkdir(exist_ok=True)
        return find(training, which, arguments, folder, began)

    with concurrent.futures.ThreadPoolExecutor(arguments.beside) as pool:
        for row in pool.map(work, jobs):
            rows.append(row)
            (out / "largest.json").write_text(json.dumps(rows, indent=1) + "\n")
    print(table(rows))
    return 0 if all(row["status"] == "ok" for row in rows) else 5


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=os.environ.get("OUT", "largest_out"))
    parser.add_argument("--headroom", default=allocator.REPO / "headroom", help="the program")
    parser.add_argument("--limit-gib", type=float, default=0.0, help="of memory for a process, in place of the table's")
    parser.add_argument("--beside", type=int, default=7, help="searches at once")
    parser.add_argument("--seconds", type=float, default=540, help="try nothing after that")
    parser.add_argument("--cell-seconds", type=float, default=90)
    parser.set_defaults(device="cuda", tiny=False)
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(run_all(parse(None)))
