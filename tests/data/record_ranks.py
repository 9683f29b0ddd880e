#!/usr/bin/env python3
"""Records ranks/rank{0,1,2}.json.gz: three processes that reduce over gloo on a CPU, of which rank 2
sleeps for 20 ms before the second of three reductions of each step. So what waits for whom is known.

Usage: record_ranks.py   (with torch; what the machine is does not matter)
"""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.profiler import ProfilerActivity, profile, schedule

import recorded

HERE = Path(__file__).resolve().parent / "ranks"
WORLD, SLOW, SLEEP_SECONDS = 3, 2, 0.02


def keep(profiler, rank):
    path = HERE / f"rank{rank}.json"
    profiler.export_chrome_trace(str(path))
    recorded.keep(path, HERE / f"rank{rank}.json.gz", spans_only=True)


def run(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29611")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    weight, gradient = torch.randn(64, 64), torch.ones(64, 64)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True,
                 schedule=schedule(wait=1, warmup=1, active=4),
                 on_trace_ready=lambda profiler: keep(profiler, rank)) as profiler:
        for _ in range(6):
            for layer in range(3):
                torch.tanh(gradient @ weight)
                if rank == SLOW and layer == 1:
                    time.sleep(SLEEP_SECONDS)
                dist.all_reduce(gradient)
                gradient /= WORLD
            profiler.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    mp.spawn(run, nprocs=WORLD)
