"""One rank of a mixture whose experts are shared out, for the oracle: transformers' own plan, nothing sent.

As tensor_ranks.py: the group of processes is PyTorch's fake one, this is rank 0, and what is allocated and kept is as
it would be. How many rows come from whom is even: nobody is there to say it.
"""

import contextlib


@contextlib.contextmanager
def mesh_of(ranks):
    """The mesh of so many ranks, each with a batch of its own; rows come evenly while it is there."""
    from headroom import tensor_ranks
    with tensor_ranks.mesh_of(ranks, (ranks, 1), ("ep", "tp")) as mesh, even_rows():
        yield mesh


def divide(model, mesh):
    """Applies transformers' plan for experts, as from_pretrained does."""
    from transformers.distributed import DistributedConfig
    from transformers.distributed.expert_parallel import apply_expert_parallelism
    ranks = mesh["ep"].size()
    plan = model._resolve_parallel_plans(DistributedConfig(fsdp_size=ranks, ep_size=ranks))[1]
    return apply_expert_parallelism(model, mesh["ep"], mesh["tp"], plan)


@contextlib.contextmanager
def even_rows():
    """What ranks would tell each other, how many rows go to each expert; where tensors hold nothing, what is read, too."""
    from torch._subclasses.fake_tensor import FakeTensor
    from transformers.distributed import expert_parallel
    experts = expert_parallel.AllToAllEP
    dispatch, read, exchange = experts._dispatch_tokens, FakeTensor.tolist, expert_parallel.all_to_all_single

    def dispatches(self, hidden_states, top_k_index, top_k_weights):
        ranks = self.ep_mesh.size()
        rows = top_k_index.numel() // ranks
        FakeTensor.tolist = lambda _: [[rows] * ranks] * 2
        expert_parallel.all_to_all_single = lambda arriving, _, group: arriving.fill_(rows // self.num_local_experts)
        try:
            return dispatch(self, hidden_states, top_k_index, top_k_weights)
        finally:
            FakeTensor.tolist, expert_parallel.all_to_all_single = read, exchange

    experts._dispatch_tokens = dispatches
    try:
        yield
    finally:
        experts._dispatch_tokens = dispatch
