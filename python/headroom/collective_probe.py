"""What a reduction among processes of this machine takes: gloo on a CPU, NCCL between its GPUs.

    python -m headroom.collective_probe --rank 0 --group 2 --store FILE --on cpu --seconds 3 --out points.json

One process of a group; take_collectives() of `headroom bench device` starts the groups. All processes
make the same calls: how often is the first one's decision, which it sends to the others. A point is
the median of single reductions on the first process, whose end no process can be far ahead of.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

GROUPS = (2, 3, 4)       # processes of a CPU; devices, as many as there are
QUICK_SECONDS = 100      # of the whole run: below it one group alone,
LEAST_SECONDS = 20       # and none, since starting processes takes seconds
MESSAGES = [4 << exponent for exponent in range(8, 25)]  # 1 KiB to 64 MiB
WARM_UP, LEAST_SAMPLES, MOST_SAMPLES = 2, 5, 200
START_SECONDS = 120      # of imports, in as many processes as a group has


def say(words):
    print(f"headroom: {words}", file=sys.stderr, flush=True)


def groups_for(machine, seconds):
    if seconds < LEAST_SECONDS:
        return []
    if machine.is_cuda:
        devices = machine.torch.cuda.device_count()
        return [group for group in (2, 4, 8) if group <= devices]
    return list(GROUPS if seconds >= QUICK_SECONDS else GROUPS[:1])


def take_collectives(machine, seconds):
    """Points of every group; those of a group that fails are left out, and it is said why."""
    points = []
    for group in groups_for(machine, seconds):
        try:
            points += run_group(group, "cuda" if machine.is_cuda else "cpu", max(2.0, 0.03 * seconds))
        except (OSError, ValueError, RuntimeError, subprocess.SubprocessError) as error:
            say(f"no reductions among {group} processes: {str(error).splitlines()[0]}")
    return points


def run_group(group, on, seconds):
    with tempfile.TemporaryDirectory(prefix="headroom-group-") as folder:
        out = os.path.join(folder, "points.json")
        command = [sys.executable, "-m", "headroom.collective_probe", "--group", str(group), "--on", on, "--seconds",
                   str(seconds), "--store", os.path.join(folder, "store"), "--out", out]
        # Wherever this file was imported from, the ranks import it from there.
        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        paths = [package, os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        ranks = [subprocess.Popen(command + ["--rank", str(rank)], stdout=subprocess.DEVNULL, env=environment,
                                  stderr=subprocess.PIPE, text=True) for rank in range(group)]
        try:
            deadline = time.monotonic() + START_SECONDS + 3 * seconds
            for rank in ranks:
                _, spoken = rank.communicate(timeout=max(0.1, deadline - time.monotonic()))
                if rank.returncode != 0:
                    lines = spoken.strip().splitlines()
                    raise RuntimeError(lines[-1] if lines else f"exit code {rank.returncode}")
        finally:
            for rank in ranks:
                if rank.poll() is None:
                    rank.kill()
                    rank.communicate()
        with open(out, encoding="utf-8") as file:
            return json.load(file)


class Rank:
    """One process of the group."""

    def __init__(self, torch, arguments):
        self.torch, self.arguments = torch, arguments
        import torch.distributed as distributed
        self.distributed = distributed
        is_cuda = arguments.on == "cuda"
        self.device = torch.device("cuda", arguments.rank) if is_cuda else torch.device("cpu")
        if is_cuda:
            torch.cuda.set_device(self.device)
        torch.set_num_threads(1)  # processes share the cores
        distributed.init_process_group("nccl" if is_cuda else "gloo", init_method=f"file://{arguments.store}",
                                       rank=arguments.rank, world_size=arguments.group)

    def once(self, tensor):
        start = time.perf_counter()
        self.distributed.all_reduce(tensor)
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)
        return time.perf_counter() - start

    def agreed(self, count):
        """The first process's number, for all."""
        number = self.torch.tensor([count], dtype=self.torch.int64, device=self.device)
        self.distributed.broadcast(number, 0)
        return int(number.item())

    def point(self, message, seconds):
        tensor = self.torch.zeros(message // 4, dtype=self.torch.float32, device=self.device)
        about = max(1e-6, min(self.once(tensor) for _ in range(WARM_UP)))
        count = self.agreed(min(MOST_SAMPLES, max(LEAST_SAMPLES, int(seconds / about))))
        self.distributed.barrier()
        samples = [self.once(tensor) for _ in range(count)]
        low, middle, high = statistics.quantiles(samples, n=4)
        group = self.arguments.group
        return {"class": "all_reduce", "rate": "fp32", "shape": {"group": group, "message": message},
                "bytes": 2 * (group - 1) / group * message, "seconds": middle,
                "uncertainty": 1.57 * (high - low) / count ** 0.5 / middle, "samples": count}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--group", type=int, required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--on", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    import torch
    rank = Rank(torch, arguments)
    points = []
    for _ in range(2):  # rounds, as of other operators: what is between them drifts
        for message in MESSAGES:
            points.append(rank.point(message, arguments.seconds / (2 * len(MESSAGES))))
    rank.distributed.barrier()
    if arguments.rank == 0:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(merged(points), file)
    rank.distributed.destroy_process_group()
    return 0


def merged(points):
    """Two rounds of each message, as one point."""
    half = len(points) // 2
    made = []
    for first, second in zip(points[:half], points[half:]):
        ratio = math.log(second["seconds"] / first["seconds"])
        made.append({**first, "seconds": first["seconds"] * math.exp(ratio / 2), "drift_log": abs(ratio),
                     "uncertainty": max(first["uncertainty"], second["uncertainty"]),
                     "samples": first["samples"] + second["samples"]})
    return made


if __name__ == "__main__":
    sys.exit(main())
