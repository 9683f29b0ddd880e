"""One tensor-parallel rank of a transformers model, for the oracle: a plan applied, nothing sent.

The group of processes is PyTorch's fake one, in which this is rank 0 and collectives return at once:
what DTensor allocates and keeps is as it would be. Entering `mesh_of` makes the group and leaving it
ends it, so there is one at a time in a process.
"""

import contextlib
import inspect


@contextlib.contextmanager
def mesh_of(ranks, shape=None, names=("tp",)):
    """The mesh of so many ranks, in a shape of its own where one is said; None for one. To be entered before
    FakeTensorMode is."""
    if ranks == 1:
        yield None
        return
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        yield init_device_mesh("cuda", shape or (ranks,), mesh_dim_names=names)
    finally:
        dist.destroy_process_group()


def divide(model, mesh):
    """Applies transformers' own plan, as from_pretrained does between construction and loading."""
    import torch
    plan = _plan_of(model, mesh)
    head = model.get_output_embeddings()
    tied = head is not None and head.weight is model.get_input_embeddings().weight
    if tied:
        # While a model is loaded, weights are tied last of all.
        head.weight = torch.nn.Parameter(torch.empty_like(head.weight))
        plan["lm_head.weight"] = plan["lm_head"]
    _apply(plan, model, mesh)
    if tied:
        model.tie_weights()
    _tell_peft(model, mesh)
    return model


def _tell_peft(model, mesh):
    """Where peft looks for how a model that was loaded in parts is divided."""
    from transformers.distributed import DistributedConfig
    model._device_mesh = mesh
    model.config.distributed_config = DistributedConfig(tp_size=mesh.size())


def _plan_of(model, mesh):
    if not hasattr(model, "_resolve_parallel_plans"):  # as in transformers 5.17
        return dict(model.tp_plan)
    from transformers.distributed import DistributedConfig
    return model._resolve_parallel_plans(DistributedConfig(tp_size=mesh.size()))[0]


def _apply(plan, model, mesh):
    """transformers 5.17 takes the plan from the model, later ones are given it."""
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism
    if len(inspect.signature(apply_tensor_parallelism).parameters) > 2:
        apply_tensor_parallelism(model, mesh, plan)
        return
    model._tp_plan = plan
    apply_tensor_parallelism(model, mesh)


def tell_whole_sizes(model):
    """peft 0.21 makes an adapter of the rank's own sizes and says so of it. transformers 5.23 asks row-parallel modules
    for the whole input's size, and ends with an error where it is told a part of it; 5.17 does not ask."""
    from torch.distributed.tensor import DTensor
    for module in model.modules():
        if isinstance(getattr(module, "weight", None), DTensor) and hasattr(module, "in_features"):
            module.out_features, module.in_features = module.weight.shape


def divide_sequences(model, mesh):
    """torchtitan's plan (parallelize_llama's apply_tp) on a transformers model of Llama's modules: between
    the modules with a part of the features each rank has its part of the sequence, and the logits stay
    in parts. What is in parts of the sequence stays a DTensor, by which the model sees whole sizes."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel,
                                                   SequenceParallel, parallelize_module)

    def scattered():
        return RowwiseParallel(output_layouts=Shard(1), use_local_output=False)

    def gathered():
        return PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))

    parallelize_module(model, mesh, {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1), use_local_output=False),
        "model.norm": SequenceParallel(),
        "lm_head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    })
    for layer in model.model.layers:
        parallelize_module(layer, mesh, {
            "input_layernorm": SequenceParallel(),
            "self_attn": PrepareModuleInput(input_kwarg_layouts={"hidden_states": Shard(1)},
                                            desired_input_kwarg_layouts={"hidden_states": Replicate()}),
            **{f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"},
            **{f"self_attn.{name}": SequenceParallel(sequence_dim=2, use_local_output=True)
               for name in ("q_norm", "k_norm") if hasattr(layer.self_attn, name)},
            "self_attn.o_proj": scattered(),
            "post_attention_layernorm": SequenceParallel(),
            "mlp": gathered(),
            "mlp.gate_proj": ColwiseParallel(),
            "mlp.up_proj": ColwiseParallel(),
            "mlp.down_proj": scattered(),
        })
    return model


@contextlib.contextmanager
def loss_of_parts():
    """loss_parallel(); it asks for each result's whole size by tensors that hold nothing, which a recorder
    among the modes would count."""
    from torch.distributed.tensor.parallel import loss
    from torch.utils._python_dispatch import _disable_current_modes
    asked = loss._propagate_tensor_meta

    def unseen(*arguments):
        with _disable_current_modes():
            return asked(*arguments)

    loss._propagate_tensor_meta = unseen
    try:
        with loss.loss_parallel():
            yield
    finally:
        loss._propagate_tensor_meta = asked


def passed_on():
    """The tensors that stand for others: a recorder lets their operators through to those."""
    from torch.distributed._functional_collectives import AsyncCollectiveTensor
    from torch.distributed.tensor import DTensor
    return (DTensor, AsyncCollectiveTensor)
