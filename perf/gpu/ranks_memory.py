"""One rank of many on one GPU: what DDP and FSDP allocate there, to hold `headroom fit --against`.

The group of processes is PyTorch's fake one: this is rank 0 of N, collectives return at once, and what they
would have filled holds anything. What the wrappers allocate, keep and let go is as it would be, by the real
allocator on a real device; the values that are trained are not. NCCL's own memory is not there.

    python3 perf/gpu/ranks_memory.py --out DIR --seconds 120
    python3 perf/gpu/ranks_memory.py --list

Settings, families and files are as train_memory.py has them (a balanced design, half of the families held
aside): DIR/measured_look.csv, DIR/measured_aside.csv, DIR/configs. Exit code 0: all ran; 5: some did not; 4: no
GPU here.
"""

import contextlib
import dataclasses
import functools
import gc
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import train_memory  # noqa: E402

DIVISIONS = ("ddp", "fsdp1", "fsdp2")
WORDS = {"ddp": "DDP", "fsdp1": "FSDP1 FULL_SHARD", "fsdp2": "FSDP2"}


@dataclasses.dataclass(frozen=True)
class Setting(train_memory.Setting):
    division: str = "fsdp2"
    ranks: int = 8


def design(count, seed):
    """Those of train_memory.py with a division and a number of ranks each; without adapters, whose small blocks say little."""
    rng = random.Random(seed)
    divisions = train_memory.balanced(DIVISIONS, count, rng)
    ranks = train_memory.balanced((2, 4, 8, 16), count, rng)
    settings = []
    for place, one in enumerate(train_memory.design(count, seed)):
        values = dataclasses.asdict(one)
        values.update(method="full", optimizer="adamw-fused" if one.optimizer == "adamw-fused" else "adamw-foreach")
        settings.append(Setting(**values, division=divisions[place], ranks=ranks[place]))
    return settings


@contextlib.contextmanager
def group_of(ranks, rank=0):
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()


def block_classes(model):
    names = set(model._no_split_modules)
    return {type(module) for module in model.modules() if type(module).__name__ in names}


def already_there(_state, bucket):
    """A sum over ranks that takes nothing."""
    import torch
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def wrapped(model, setting, device):
    import torch
    if setting.division == "ddp":
        from torch.nn.parallel import DistributedDataParallel
        module = DistributedDataParallel(model)
        module.register_comm_hook(None, already_there)  # DDP's own sum waits for what the fake group does not give
        return module
    if setting.division == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
        policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=block_classes(model))
        return FullyShardedDataParallel(model, auto_wrap_policy=policy, use_orig_params=True,
                                        device_id=torch.device("cuda", 0) if device == "cuda" else None)
    from torch.distributed.device_mesh import init_device_mesh
    return fully_sharded(model, init_device_mesh(device, (setting.ranks,)))


def fully_sharded(model, mesh):
    from torch.distributed.fsdp import fully_shard
    classes = block_classes(model)
    for module in list(model.modules()):
        if type(module) in classes:
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def forget(device):
    """What was there before the first step counts for no peak."""
    import torch
    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def run_setting(model, setting, device):
    """As train_memory's, of rank 0. FSDP's peak counts from where the model is divided: the whole is there before."""
    with group_of(setting.ranks):
        vocab, parameters = model.config.vocab_size, sum(p.numel() for p in model.parameters())
        module = wrapped(train_memory.prepared(model, setting, device), setting, device)
        forget(device)
        return {**train_memory.train(module, setting, device, vocab), "n_params": parameters}


def rows_of(setting, result, about, seconds):
    rows = train_memory.rows_of(setting, result, about, seconds)
    for row in rows:
        row.update(source="ranks_memory", n_gpus=setting.ranks, parallelism=WORDS[setting.division], nvidia_smi_mib="",
                   notes=row["notes"] + "; rank 0 of a fake group")
    return rows


KIND = train_memory.Kind(design, run_setting, rows_of)


def main(words=None):
    return train_memory.run(KIND, words, "ranks_memory_out", 60)


if __name__ == "__main__":
    sys.exit(main())
