"""PyTorch's allocator, its expandable segments, and Headroom's, under the same training on one GPU.

Each cell of the table is a process of its own: `headroom run [--off] -- python allocator.py --worker`,
so all three are told in the same words, and Headroom is put in as a user would put it in. Random
weights, deterministic mode where PyTorch has one; a worker prints its losses (as hexadecimal floats, so
that they can be compared to the bit) and its peaks after the first iterations.

    python3 perf/gpu/allocator.py --out DIR --beside 3
    python3 perf/gpu/allocator.py --list                    what would be run

What a process may have does not depend on others beside it, while all of them fit: a cell that failed beside
others, or whose allocator found no memory there, is run again alone. (How long a step takes does depend on
them: step_times.py. The largest micro-batch: largest_batch.py.)

Writes DIR/results.json (a row a process, flushed as they come) and a table beside it. Exit code 0: all ran and every
loss was the same; 1: losses differ; 5: the time was over or some failed; 4: no GPU here.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import ranks_memory  # noqa: E402

REPO = Path(__file__).resolve().parents[2]

# Iterations before the peaks are taken anew: the plan is made in these.
WARM_UP = 14
ALLOCATORS = ("default", "expandable", "headroom", "headroom-apart")  # the last: told of no stream's waits

_LLAMA = {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16,
          "num_key_value_heads": 8, "intermediate_size": 5632, "vocab_size": 32000,
          "max_position_embeddings": 4096}
MODELS = {
    "gpt2": ("gpt2", {"n_embd": 1024, "n_layer": 24, "n_head": 16, "n_positions": 2048}),
    "llama": ("llama", _LLAMA),
    "mixtral": ("mixtral", {**_LLAMA, "hidden_size": 1024, "num_hidden_layers": 12,
                            "intermediate_size": 2816, "num_local_experts": 8,
                            "num_experts_per_tok": 2}),
}
TINY = {"n_embd": 32, "n_layer": 2, "n_head": 2, "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 64,
        "vocab_size": 128}
# What a pattern does to memory: layers that are gathered from shares when they are needed (ZeRO's third stage, by
# fully_shard); recomputation; all alike; three lengths in turn; evaluation between.
PATTERNS = ("zero", "recompute", "plain", "lengths", "evaluate")
RANKS = 4  # of "zero"


@dataclasses.dataclass(frozen=True)
class Cell:
    model: str
    pattern: str
    allocator: str
    batch: int
    seq: int
    steps: int
    limit_bytes: int = 0  # of the device's memory; 0: all of it
    deterministic: bool = True


def cells(batch, seq, steps):
    """Expandable segments where all steps are alike: what it does elsewhere a recording replayed tells (perf/runtime)."""
    return [Cell(model, pattern, allocator, batch, seq, steps)
            for pattern in PATTERNS for model in MODELS for allocator in ALLOCATORS
            if allocator not in ("expandable", "headroom-apart")
            or pattern in {"expandable": ("plain", "recompute", "zero"), "headroom-apart": ("zero",)}[allocator]]


# The worker: one training.

def make_model(torch, cell, device, tiny):
    """Made where it is to be, which takes a second instead of ten; the same under every allocator."""
    from transformers import AutoConfig, AutoModelForCausalLM
    family, values = MODELS[cell.model]
    if tiny:
        values = {key: TINY.get(key, value) for key, value in values.items()}
        values["vocab_size"] = TINY["vocab_size"]
    config = AutoConfig.for_model(family, **values, use_cache=False, bos_token_id=1,
                                  eos_token_id=2, pad_token_id=0)
    if cell.deterministic:
        config._attn_implementation = "eager"  # whose kernels are
    config._experts_implementation = "eager"  # an expert's tokens at a time: sizes are by the routing
    torch.manual_seed(0)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


def length_of(cell, step):
    if cell.pattern != "lengths":
        return cell.seq
    return (cell.seq, cell.seq // 2, cell.seq * 3 // 4)[step % 3]


def as_one_of(device, ranks):
    """A group of so many ranks in which all others are taken to hold what this one does: what it gathers is its own
    share over and over, what it reduces its own part. So every buffer, stream and copy of fully_shard is there, and
    every value is the same in every run."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)

    def all_gather(output_tensor, input_tensor, group=None, async_op=False):
        output_tensor.view(ranks, -1).copy_(input_tensor.view(1, -1).expand(ranks, -1))

    def reduce_scatter(output, input, op=None, group=None, async_op=False):  # noqa: A002  torch's name
        output.copy_(input.view(ranks, -1)[0].view_as(output))

    dist.all_gather_into_tensor, dist.reduce_scatter_tensor = all_gather, reduce_scatter
    return dist.device_mesh.init_device_mesh(device, (ranks,))


def peaks(torch, cuda):
    if not cuda:
        return {"allocated": 0, "reserved": 0}
    return {"allocated": torch.cuda.max_memory_allocated(),
            "reserved": torch.cuda.max_memory_reserved()}


class Training:
    """Of a cell. step() does one step of it and gives the losses, on the device."""

    def __init__(self, torch, cell, device, tiny):
        self.torch, self.cell, self.device, self.done = torch, cell, device, 0
        torch.use_deterministic_algorithms(cell.deterministic, warn_only=True)
        if cell.limit_bytes and device == "cuda":
            torch.cuda.set_per_process_memory_fraction(
                cell.limit_bytes / torch.cuda.get_device_properties(0).total_memory)
        self.model = make_model(torch, cell, device, tiny)
        if cell.pattern == "recompute":
            self.model.gradient_checkpointing_enable()
        if cell.pattern == "zero":
            ranks_memory.fully_sharded(self.model, as_one_of(device, RANKS))
            if device == "cuda":
                torch.cuda.empty_cache()  # of the whole model, which a rank never has
        self.model.train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, foreach=True)
        self.generator = torch.Generator().manual_seed(1)

    def step(self):
        size = (self.cell.batch, length_of(self.cell, self.done))
        tokens = self.torch.randint(3, self.model.config.vocab_size, size, generator=self.generator).to(self.device)
        loss = self.model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        losses = [loss.detach()]
        if self.cell.pattern == "evaluate" and self.done % 4 == 3:
            with self.torch.no_grad():
                self.model.eval()
                losses.append(self.model(input_ids=tokens, labels=tokens).loss)
                self.model.train()
        self.done += 1
        return losses


def train(cell, device, tiny):
    """What the worker prints."""
    import torch
    cuda = device == "cuda"
    training, losses, first = Training(torch, cell, device, tiny), [], {}
    for step in range(cell.steps):
        if step == WARM_UP and cuda:
            torch.cuda.synchronize()
            first = peaks(torch, cuda)
            torch.cuda.reset_peak_memory_stats()
        losses += training.step()
    if cuda:
        torch.cuda.synchronize()
    last = peaks(torch, cuda)
    return {"losses": [float(value).hex() for value in losses],
            "retries": torch.cuda.memory_stats().get("num_alloc_retries", 0) if cuda else 0,
            "peak_allocated_bytes": last["allocated"], "peak_reserved_bytes": last["reserved"],
            "warm_up_reserved_bytes": first.get("reserved", 0),
            "gpu": torch.cuda.get_device_name() if cuda else "cpu",
            "torch": torch.__version__}


# The parent: a process a cell.

def command_of(cell, arguments, answer, script=__file__):
    flags = [] if cell.allocator.startswith("headroom") else ["--off"]
    worker = [sys.executable, str(Path(script).resolve()), "--worker",
              json.dumps(dataclasses.asdict(cell)), "--device", arguments.device]
    return [str(arguments.headroom), "run", "--json", "-o", str(answer), *flags, "--", *worker,
            *(["--tiny"] if arguments.tiny else [])]


def environment_of(cell, out):
    # A cache of its own: no plan of an earlier day.
    environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "TOKENIZERS_PARALLELISM": "0",
                   "HEADROOM_CACHE": str(out.resolve() / "cache")}
    environment.pop("PYTORCH_CUDA_ALLOC_CONF", None)
    environment.pop("PYTORCH_ALLOC_CONF", None)
    if cell.allocator == "expandable":
        environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    if cell.allocator == "headroom-apart":
        environment["HEADROOM_RUN_STREAM_ORDER"] = "off"
        environment["HEADROOM_CACHE"] += "-apart"  # no plan of the other one's
    return environment


def run_cell(cell, arguments, out, alone=True):
    answer = out / f"{cell.model}-{cell.pattern}-{cell.allocator}.json"
    try:
        done = subprocess.run(command_of(cell, arguments, answer), env=environment_of(cell, out),
                              capture_output=True, text=True, check=False,
                              timeout=arguments.cell_seconds)
    except subprocess.TimeoutExpired:
        return {**dataclasses.asdict(cell), "alone": alone,
                "status": f"cut off at {arguments.cell_seconds} s"}
    row = {**dataclasses.asdict(cell), "alone": alone, "status": "ok" if done.returncode == 0 else
           f"exit {done.returncode}: {done.stderr.strip().splitlines()[-1:]}"}
    if done.returncode == 0:
        row.update(json.loads(done.stdout.strip().splitlines()[-1]))
    if answer.exists():
        row["headroom_run"] = json.loads(answer.read_text())
    return row


def same_losses(rows):
    """(model, pattern) whose losses are not the same to the bit under every allocator."""
    by_training = {}
    for row in rows:
        if row["status"] == "ok":
            by_training.setdefault((row["model"], row["pattern"]), set()).add(tuple(row["losses"]))
    return [key for key, losses in by_training.items() if len(losses) > 1]


def table(rows):
    lines = [f"{'model':9}{'pattern':11}{'allocator':12}{'reserved GiB':>13}{'allocated':>11}"
             f"{'efficiency':>12}  status"]
    for row in rows:
        reserved, allocated = row.get("peak_reserved_bytes", 0), row.get("peak_allocated_bytes", 0)
        efficiency = f"{100 * allocated / reserved:.2f} %" if reserved else ""
        lines.append(f"{row['model']:9}{row['pattern']:11}{row['allocator']:12}"
                     f"{reserved / 2**30:13.3f}{allocated / 2**30:11.3f}{efficiency:>12}"
                     f"  {row['status']}")
    return "\n".join(lines) + "\n"


def planned_cells(arguments):
    return [cell for cell in cells(arguments.batch, arguments.seq, arguments.steps)
            if arguments.only in (cell.model, "")]


def run_all(arguments):
    if arguments.device == "cuda" and not Path("/proc/driver/nvidia").exists():
        print("no NVIDIA driver here", file=sys.stderr)
        return 4
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    began, rows = time.monotonic(), []
    planned = planned_cells(arguments)

    def take(row):
        rows.append(row)
        (out / "results.json").write_text(json.dumps(rows, indent=1) + "\n")
        print(f"{len(rows)}/{len(planned)} {row['model']} {row['pattern']} {row['allocator']}: "
              f"{row['status']}", file=sys.stderr, flush=True)

    def run_one(cell, alone):
        if time.monotonic() - began > arguments.seconds:
            return None
        return run_cell(cell, arguments, out, alone)

    alone, again = arguments.beside == 1, []
    with concurrent.futures.ThreadPoolExecutor(arguments.beside) as pool:
        for cell, row in zip(planned, pool.map(lambda cell: run_one(cell, alone), planned)):
            if row is None:
                continue
            if not alone and (row["status"] != "ok" or row.get("retries")):
                again.append(cell)
            else:
                take(row)
    for cell in again:
        row = run_one(cell, True)
        if row is not None:
            take(row)
    (out / "results.txt").write_text(table(rows))
    print(table(rows))
    differ = same_losses(rows)
    for model, pattern in differ:
        print(f"LOSSES DIFFER: {model} {pattern}")
    if differ:
        return 1
    return 0 if len(rows) == len(planned) and all(r["status"] == "ok" for r in rows) else 5


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=os.environ.get("OUT", "allocator_out"))
    parser.add_argument("--headroom", default=REPO / "headroom", help="the program")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=26, help="of a training")
    parser.add_argument("--beside", type=int, default=3, help="cells at once")
    parser.add_argument("--only", default="", help="one model of " + ", ".join(MODELS))
    parser.add_argument("--seconds", type=float, default=540, help="start nothing after that")
    parser.add_argument("--cell-seconds", type=float, default=180)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true", help="tiny models, to try the script")
    parser.add_argument("--list", action="store_true", help="print the cells, run none")
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    return parser.parse_args(words)


def main(words=None):
    arguments = parse(words)
    if arguments.worker:
        print(json.dumps(train(Cell(**json.loads(arguments.worker)), arguments.device,
                               arguments.tiny)))
        return 0
    if arguments.list:
        print(json.dumps([dataclasses.asdict(cell) for cell in planned_cells(arguments)], indent=1))
        return 0
    return run_all(arguments)


if __name__ == "__main__":
    sys.exit(main())
