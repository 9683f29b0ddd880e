"""What real FSDP gathers, lets go and reduces on one rank, in order; for test_fsdp.py.

A process of its own, on the CPU, with a group of processes that is not there: nothing is sent, and all
that FSDP allocates and keeps is as it would be. Reads a JSON list of cases from stdin, writes the list
of their logs, [phase, kind, bytes] each, to stdout. Of version 2 the log has each block: the buffers of
gathering and reducing, and the parameters copied out.
"""

import contextlib
import copy
import functools
import itertools
import json
import os
import sys
import types
import weakref

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
from torch.distributed.fsdp import _flat_param, _runtime_utils
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_collectives, _fsdp_param, _fsdp_param_group
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig, AutoModelForCausalLM

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python"))
from headroom.expert_ranks import even_rows  # noqa: E402 (from this tree)
from headroom.pipeline_ranks import PipelineSteps, nothing_sent, parts_of_rank  # noqa: E402

class Log:
    """Listens to FSDP's own functions."""

    def __init__(self):
        self.phase, self.entries = "forward", []
        self.keeps_reduced = False  # what is reduced among replicas is cast, and stays beside the gradient
        self.listen_to_version_1()
        self.listen_to_version_2()

    def listen_to_version_1(self):
        handle = _flat_param.FlatParamHandle
        gather, release = handle._alloc_padded_unsharded_flat_param, handle._free_unsharded_flat_param
        reduce = _runtime_utils._get_reduce_scatter_tensors

        def gathers(itself):
            whole = gather(itself)
            self.add("gather", whole)
            return whole

        def releases(itself):
            whole = itself._get_padded_unsharded_flat_param()
            if whole.untyped_storage().size() > 0:
                self.add("release", whole)
            return release(itself)

        def reduces(state, gradient):
            padded, share = reduce(state, gradient)
            self.add("reduce", share)
            return padded, share

        handle._alloc_padded_unsharded_flat_param = gathers
        handle._free_unsharded_flat_param = releases
        _runtime_utils._get_reduce_scatter_tensors = reduces

    def listen_to_version_2(self):
        parameter = _fsdp_param.FSDPParam
        first, copy, free = (parameter.init_all_gather_outputs, parameter.alloc_all_gather_outputs,
                             parameter.free_unsharded_param)

        def first_copies(itself, *arguments):
            is_first = not itself.all_gather_outputs
            first(itself, *arguments)
            for tensor in itself.all_gather_outputs if is_first else ():
                self.add("alloc", tensor)

        def copies(itself):
            for tensor in itself.all_gather_outputs:
                if tensor.untyped_storage().size() == 0:
                    self.add("alloc", tensor)
            copy(itself)

        own = _fsdp_param_group.alloc_storage

        def copies_own(tensor):  # of a group of one, which gathers nothing
            if tensor.untyped_storage().size() == 0:
                self.add("alloc", tensor)
            own(tensor)

        _fsdp_param_group.alloc_storage = copies_own

        def frees(itself):
            for tensor in itself.all_gather_outputs:
                if tensor.untyped_storage().size() > 0:
                    self.add("free", tensor)
            free(itself)

        def gather_buffer(itself, size, *, dtype, device):
            return self.buffer(torch.empty(*size, dtype=dtype, device=device))

        def reduce_buffer(itself, size, *, dtype, device):
            # First the input, then the output, which is the gradients.
            itself.calls = getattr(itself, "calls", 0) + 1
            made = torch.empty(*size, dtype=dtype, device=device)
            if itself.calls % 2 or self.keeps_reduced:
                return self.buffer(made)
            self.add("reduce", made)
            return made

        parameter.init_all_gather_outputs = first_copies
        parameter.alloc_all_gather_outputs, parameter.free_unsharded_param = copies, frees
        _fsdp_collectives.DefaultAllGather.allocate = gather_buffer
        _fsdp_collectives.DefaultReduceScatter.allocate = reduce_buffer

    def buffer(self, made):
        """A block that goes when nobody holds it any more."""
        self.add("alloc", made)
        bytes_ = made.numel() * made.element_size()
        weakref.finalize(made.untyped_storage(), self.let_go, bytes_)
        return made

    def let_go(self, bytes_):
        self.entries.append([self.phase, "free", bytes_])

    def add(self, kind, tensor):
        self.entries.append([self.phase, kind, tensor.numel() * tensor.element_size()])


def sharded_stage(case, log):
    """A stage of a pipeline whose units are sharded as torchtitan has them: gathered until the step's end."""
    mesh = init_device_mesh("cpu", (case["stages"], case["ranks"]), mesh_dim_names=("pp", "dp"))
    options = types.SimpleNamespace(
        schedule=case["schedule"], stages=case["stages"], stage=case["stage"], chunks=case.get("chunks", 1),
        accumulation=case["accumulation"], batch=2, seq=16, dtype="bfloat16", keep_outputs=False)
    with open(case["config"], encoding="utf-8") as file:
        config = AutoConfig.for_model(**json.load(file))
    dtype = torch.float32 if "fsdp_compute" in case else torch.bfloat16
    modules = parts_of_rank(lambda: AutoModelForCausalLM.from_config(
        copy.deepcopy(config), dtype=dtype, attn_implementation="eager"), options)
    if case.get("quantize"):
        from quantized import quantize

        for part in modules:
            quantize(part.model, case["quant_storage"])
    if "lora_targets" in case:
        from adapters import adapters_of
        from peft import get_peft_model

        modules = get_peft_model(modules, adapters_of(case)).get_base_model()
    modules.train()
    wrap = {"mesh": mesh["dp"], "reshard_after_forward": False}
    if "fsdp_compute" in case:
        reduced = torch.float32 if case.get("fsdp_reduce") == "fp32" else torch.bfloat16
        wrap["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduced)
    for part in modules:
        if case["checkpointing"] != "none":
            part.model.gradient_checkpointing_enable(
                gradient_checkpointing_kwargs={"use_reentrant": case["checkpointing"] == "reentrant"})
        for layer in part.model.layers:
            fully_shard(layer, **wrap)
        fully_shard(part, **wrap)
        for module in part.modules():
            if case["ranks"] == 1 and isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)  # as torchtitan does, which makes a block of one rank's alone
    steps = PipelineSteps(modules, options, config, "cpu", mesh["pp"].get_group())
    return modules, config, functools.partial(one_step_of_stages, steps, options, log)


def one_step_of_stages(steps, options, log, config):
    stages = getattr(steps.schedule, "_stages", None) or [steps.schedule._stage]
    names = (("forward", "forward_one_chunk"), ("backward", "backward_one_chunk"), ("backward", "perform_reduce_grad"))
    for stage, (phase, name) in itertools.product(stages, names):
        original = getattr(type(stage), name)

        def in_phase(*arguments, stage=stage, original=original, phase=phase, **named):
            log.phase = phase
            return original(stage, *arguments, **named)

        setattr(stage, name, in_phase)
    ids = torch.zeros(2 * options.accumulation, 16, dtype=torch.int64) % config.vocab_size
    steps(ids, ids)


def wrapped_model(case):
    with open(case["config"], encoding="utf-8") as file:
        config = AutoConfig.for_model(**json.load(file))
    model = AutoModelForCausalLM.from_config(
        config, dtype=torch.bfloat16, attn_implementation="eager").train()
    if case["checkpointing"] != "none":
        model.gradient_checkpointing_enable(
            gradient_checkpointing_kwargs={"use_reentrant": case["checkpointing"] == "reentrant"})
    names = set(model._no_split_modules)
    classes = {type(module) for module in model.modules() if type(module).__name__ in names}
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=classes)
    if case.get("quantize"):
        from quantized import quantize

        quantize(model, case["quant_storage"])
    if "lora_targets" in case:
        from adapters import adapters_of
        from peft import get_peft_model
        from peft.utils.other import fsdp_auto_wrap_policy

        if case["checkpointing"] != "none":
            model.enable_input_require_grads()
        model = get_peft_model(model, adapters_of(case, "CAUSAL_LM"))
        policy = fsdp_auto_wrap_policy(model)
    if "expert_ranks" in case:
        return share_experts_out(model, case), config
    if case["version"] == 2:
        return shard_fully(model, classes, case), config
    precision = None
    if case.get("fsdp_compute"):
        dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[case["fsdp_compute"]]
        precision = MixedPrecision(param_dtype=dtype, reduce_dtype=dtype)
        # accelerate keeps what is trained in float32.
        model = model.to(torch.float32)
    return FullyShardedDataParallel(
        model, auto_wrap_policy=policy, use_orig_params=True, mixed_precision=precision,
        device_id=torch.device("cpu")), config


def share_experts_out(model, case):
    """As from_pretrained(distributed_config=...) does between construction and loading."""
    from transformers.distributed import DistributedConfig
    from transformers.distributed.utils import initialize_distributed_mesh

    config = DistributedConfig(fsdp_size=case["ranks"], ep_size=case["expert_ranks"], dp_replicate_size=case.get("replicas", 1),
                               fsdp_mixed_precision="fsdp_compute" in case)
    model = model.to(torch.float32) if "fsdp_compute" in case else model
    return type(model).maybe_distribute_model(model, config, initialize_distributed_mesh(config)[1])


def shard_fully(model, classes, case):
    mesh = init_device_mesh("cpu", (case["ranks"],))
    if "replicas" in case:
        mesh = init_device_mesh("cpu", (case["replicas"], case["ranks"]),
                                mesh_dim_names=("replicate", "shard"))
    options = {"mesh": mesh}
    if case.get("fsdp_compute"):
        dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[case["fsdp_compute"]]
        reduced = torch.float32 if case.get("fsdp_reduce") == "fp32" else dtype
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=reduced)
        model = model.to(torch.float32)
    layers = [module for module in model.modules() if type(module) in classes]
    for layer in layers:
        whole = {"none": True, "but-last": layer is layers[-1]}.get(case.get("reshards"), False)
        fully_shard(layer, **options, **({"reshard_after_forward": False} if whole else {}))
    if case.get("ends"):
        shard_ends(model, options)
    fully_shard(model, **options)
    return model


def shard_ends(model, options):
    """As torchtitan and accelerate have it: the embedding, and the final norm with the head."""
    model = model.get_base_model() if hasattr(model, "get_base_model") else model
    decoder = getattr(model, "transformer", None) or model.model
    norm = decoder.ln_f if hasattr(decoder, "ln_f") else decoder.norm
    fully_shard(model.get_input_embeddings(), **options)
    fully_shard([norm, model.get_output_embeddings()], **options, reshard_after_forward=False)


def whole_gradients(model, version):
    """Bytes of the gradients that no reduction has taken."""
    if version == 1:
        handles = [module._handle for module in FullyShardedDataParallel.fsdp_modules(model) if module._handle]
        tensors = [handle.flat_param.grad for handle in handles]
    else:
        groups = [module._get_fsdp_state()._fsdp_param_group for module in model.modules()
                  if isinstance(module, FSDPModule)]
        groups = {id(group): group for group in groups if group}.values()  # several modules may have one
        parameters = [parameter for group in groups for parameter in group.fsdp_params]
        tensors = [parameter._unsharded_param.grad if parameter.unsharded_accumulated_grad is None
                   else parameter.unsharded_accumulated_grad for parameter in parameters]
    own = [getattr(tensor, "_local_tensor", tensor) for tensor in tensors if tensor is not None]
    return sum(tensor.numel() * tensor.element_size() for tensor in own)


def one_backward(model, config, log):
    ids = torch.zeros(2, 16, dtype=torch.int64) % config.vocab_size
    log.phase = "forward"
    loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    log.phase = "backward"
    loss.backward()


def micro_batches(model, config, case, log):
    """All but the last of a step's, their gradients whole or reduced."""
    for _ in range(case.get("accumulation", 1) - 1):
        if case.get("defers_replicas"):
            model.set_requires_all_reduce(False)
            one_backward(model, config, log)
            model.set_requires_all_reduce(True)
            continue
        if not case.get("no_sync"):
            one_backward(model, config, log)
            continue
        if case["version"] == 1:
            with model.no_sync():
                one_backward(model, config, log)
        else:
            model.set_requires_gradient_sync(False)
            one_backward(model, config, log)
            model.set_requires_gradient_sync(True)
        log.entries.append(["backward", "whole", whole_gradients(model, case["version"])])


def run(case, log):
    world = case["ranks"] * case.get("replicas", 1) * case.get("stages", 1)
    rank = case["ranks"] * case.get("stage", 0)
    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    with contextlib.ExitStack() as stack:
        stack.callback(dist.destroy_process_group)
        if "schedule" in case:
            stack.enter_context(nothing_sent())
            model, config, step = sharded_stage(case, log)
            log.entries = []
            for _ in range(case["steps"]):
                step(config)
                for parameter in model.parameters():
                    parameter.grad = None
            return log.entries
        if "expert_ranks" in case:
            stack.enter_context(even_rows())
        model, config = wrapped_model(case)
        log.entries = []
        log.keeps_reduced = "replicas" in case and "fsdp_compute" in case
        for _ in range(case["steps"]):
            micro_batches(model, config, case, log)
            one_backward(model, config, log)
            for parameter in model.parameters():
                parameter.grad = None
        return log.entries


def main():
    log = Log()
    json.dump([run(case, log) for case in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
