"""What only the shim serves, on one GPU: under PyTorch's own allocator and under Headroom's.

Builds the shim for this Python's PyTorch, then runs each check as a user would, a process each:
`headroom run [--off] -- python shim.py --worker CHECK`. A worker prints what it computed (hexadecimal
floats, compared to the bit where the check says so) and what it saw of memory.

    python3 perf/gpu/shim.py --out DIR
    python3 perf/gpu/shim.py --list          what would be run

Writes DIR/shim.json. Exit code 0: all held; 1: values differ or something did not hold; 4: no GPU here, or
no shim can be built; 5: some failed or the time was over.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
STEPS = 12


def _block(torch, device, width=64):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(),
                               torch.nn.Linear(4 * width, width)).to(device)


def _train(torch, model, inputs):
    """Losses of a few steps, each input in turn."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    losses = []
    for step in range(STEPS):
        loss = model(inputs[step % len(inputs)]).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(float(loss.detach()))
    return losses


def cudnn_benchmark(torch, device):
    """Asks cacheInfo. Which algorithm is fastest may differ, so values are not compared to the bit."""
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.ReLU(),
                                torch.nn.Conv2d(32, 8, 3, padding=1)).to(device)
    losses = _train(torch, model, [torch.randn(8, 3, 64, 64, device=device)])
    return losses, {"stays on": torch.backends.cudnn.benchmark is True}


def reduce_overhead(torch, device):
    """Graph trees: pools are saved and restored, two shapes make two branches."""
    model = torch.compile(_block(torch, device), mode="reduce-overhead")
    inputs = [torch.randn(rows, 64, device=device) for rows in (32, 48)]
    losses = _train(torch, model, inputs)
    return losses, {"falls": losses[-2] < losses[0]}  # of the same input


def compiled_transformer(torch, device):
    """Graph trees of a whole training step: forward and backward are graphs of one pool."""
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=3, use_cache=False, attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0)).to(device)
    tokens = torch.randint(3, model.config.vocab_size, (4, 128), device=device)
    compiled, optimizer, losses = torch.compile(model, mode="reduce-overhead"), torch.optim.AdamW(model.parameters()), []
    for _ in range(STEPS):
        loss = compiled(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(float(loss.detach()))
        del loss
    return losses, {"falls": losses[-1] < losses[0]}


def plain_graph(torch, device):
    """torch.cuda.graph, captured beside an eager step, and replayed."""
    model = _block(torch, device)
    held = torch.randn(32, 64, device=device)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        model(held)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        out = model(held)
    values, same = [], True
    for factor in (1.0, 2.0, 3.0):
        held.fill_(factor)
        graph.replay()
        values.append(float(out.sum()))
        with torch.no_grad():
            same = same and torch.equal(out, model(held))
    return values, {"replays as eager": same}


def mempool(torch, device):
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = torch.full((1 << 20,), 2.0, device=device)
    outside = torch.full((1 << 20,), 3.0, device=device)
    held = {segment["address"]: segment["total_size"] for segment in pool.snapshot()}
    is_in = any(start <= inside.data_ptr() < start + size for start, size in held.items())
    is_out = not any(start <= outside.data_ptr() < start + size for start, size in held.items())
    before = torch.cuda.memory_allocated()
    total = float((inside * outside).sum())
    del inside, outside
    torch.cuda.synchronize()
    return [total], {"inside lies in it": is_in, "outside does not": is_out,
                     "is given back": torch.cuda.memory_allocated() == before - (8 << 20)}


def profiler_memory(torch, device):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU],
                                profile_memory=True) as profiler:
        values = [float(torch.ones(1 << 20, device=device).sum())]
    shown = sum(abs(getattr(event, "self_device_memory_usage", 0)) for event in profiler.events())
    return values, {"shows device memory": shown > 0}


# Check: whether its values are compared to the bit.
CHECKS = {"cudnn_benchmark": False, "reduce_overhead": True, "plain_graph": True, "mempool": True,
          "profiler_memory": True, "compiled_transformer": True}


def work(check, device):
    import torch
    values, holds = globals()[check](torch, device)
    figures = {}
    if device == "cuda":
        torch.cuda.synchronize()
        stats = torch.cuda.memory_stats()
        holds["no figure is negative"] = all(
            value >= 0 for name, value in stats.items() if name != "max_split_size")
        figures = {"backend": torch.cuda.get_allocator_backend(),
                   "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
                   "peak_reserved_bytes": torch.cuda.max_memory_reserved()}
    return {"values": [value.hex() for value in values], "holds": holds, **figures}


def run_check(check, is_ours, arguments, environment):
    worker = [sys.executable, str(Path(__file__).resolve()), "--worker", check, "--device",
              arguments.device]
    command = [str(arguments.headroom), "run", "--quiet", *([] if is_ours else ["--off"]), "--", *worker]
    row = {"check": check, "allocator": "headroom" if is_ours else "native"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False,
                              timeout=arguments.check_seconds)
    except subprocess.TimeoutExpired:
        return {**row, "status": f"cut off at {arguments.check_seconds} s"}
    if done.returncode != 0:
        return {**row, "status": f"exit {done.returncode}: {done.stderr.strip().splitlines()[-3:]}"}
    return {**row, "status": "ok", **json.loads(done.stdout.strip().splitlines()[-1])}


def what_did_not_hold(rows):
    """In words."""
    by_check = {}
    for row in rows:
        if row["status"] != "ok":
            continue
        by_check.setdefault(row["check"], []).append(row)
        for words, is_so in row["holds"].items():
            if not is_so:
                yield f"{row['check']}, {row['allocator']}: not so: {words}"
        if row["allocator"] == "headroom" and row.get("backend", "headroom") != "headroom":
            yield f"{row['check']}: the shim was not used, but {row['backend']}"
    for check, pair in by_check.items():
        if CHECKS[check] and len({tuple(row["values"]) for row in pair}) > 1:
            yield f"{check}: values differ"


def run_all(arguments):
    if arguments.device == "cuda" and not Path("/proc/driver/nvidia").exists():
        print("no NVIDIA driver here", file=sys.stderr)
        return 4
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "HEADROOM_CACHE": str(out.resolve() / "shim_cache"), "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    if arguments.device == "cuda":
        built = subprocess.run([str(arguments.headroom), "run", "--build-shim", "--json", "--",
                                sys.executable], env=environment, capture_output=True, text=True,
                               check=False)
        (out / "shim_build.json").write_text(built.stdout)
        if built.returncode != 0:
            print(built.stderr, file=sys.stderr)
            return 4
    began, rows = time.monotonic(), []
    planned = [(check, is_ours) for check in CHECKS for is_ours in (False, True)]
    for check, is_ours in planned:
        if time.monotonic() - began > arguments.seconds:
            break
        rows.append(run_check(check, is_ours, arguments, environment))
        (out / "shim.json").write_text(json.dumps(rows, indent=1) + "\n")
        print(f"{len(rows)}/{len(planned)} {check} {rows[-1]['allocator']}: {rows[-1]['status']}",
              flush=True)
    broken = list(what_did_not_hold(rows))
    for words in broken:
        print(f"DOES NOT HOLD: {words}")
    if broken:
        return 1
    return 0 if len(rows) == len(planned) and all(row["status"] == "ok" for row in rows) else 5


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=os.environ.get("OUT", "allocator_out"))
    parser.add_argument("--headroom", default=REPO / "headroom", help="the program")
    parser.add_argument("--seconds", type=float, default=300, help="start nothing after that")
    parser.add_argument("--check-seconds", type=float, default=180)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--list", action="store_true", help="print the checks, run none")
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    return parser.parse_args(words)


def main(words=None):
    arguments = parse(words)
    if arguments.worker:
        print(json.dumps(work(arguments.worker, arguments.device)))
        return 0
    if arguments.list:
        print("\n".join(CHECKS))
        return 0
    return run_all(arguments)


if __name__ == "__main__":
    sys.exit(main())
