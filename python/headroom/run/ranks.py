"""Which rank of how many this process is, by what its launcher left in the environment."""

import os

# torchrun and accelerate, Slurm, Open MPI, MPICH and Intel MPI.
_NAMES = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"),
          ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))


def _number(name):
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() and len(text) < 10 else None


def _of_torch(torch):
    distributed = getattr(torch, "distributed", None)
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
    except (RuntimeError, ValueError):
        pass
    return None


def rank_and_world(torch=None):
    """(rank or None, world size)."""
    if torch is not None:
        said = _of_torch(torch)
        if said:
            return said
    for rank_name, world_name in _NAMES:
        rank, world = _number(rank_name), _number(world_name)
        if rank is not None and world:
            return rank, world
    return None, 1
