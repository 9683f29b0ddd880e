"""One tensor-parallel rank of a transformers model, for the oracle: its plan applied, nothing sent.

The group of processes is PyTorch's fake one, in which this is rank 0 and collectives return at once:
what DTensor allocates and keeps is as it would be. Entering `mesh_of` makes the group and leaving it
ends it, so there is one at a time in a process.
"""

import contextlib


@contextlib.contextmanager
def mesh_of(ranks):
    """The mesh of so many ranks; None for one. To be entered before FakeTensorMode is."""
    if ranks == 1:
        yield None
        return
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        yield init_device_mesh("cuda", (ranks,), mesh_dim_names=("tp",))
    finally:
        dist.destroy_process_group()


def divide(model, mesh):
    """Applies transformers' own plan, as from_pretrained does between construction and loading."""
    import torch
    from transformers.distributed import DistributedConfig
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism
    plan, _, _ = model._resolve_parallel_plans(DistributedConfig(tp_size=mesh.size()))
    head = model.get_output_embeddings()
    tied = head is not None and head.weight is model.get_input_embeddings().weight
    if tied:
        # While a model is loaded, weights are tied last of all.
        head.weight = torch.nn.Parameter(torch.empty_like(head.weight))
        plan["lm_head.weight"] = plan["lm_head"]
    apply_tensor_parallelism(model, mesh, plan)
    if tied:
        model.tie_weights()
    return model


def passed_on():
    """The tensors that stand for others: a recorder lets their operators through to those."""
    from torch.distributed._functional_collectives import AsyncCollectiveTensor
    from torch.distributed.tensor import DTensor
    return (DTensor, AsyncCollectiveTensor)
