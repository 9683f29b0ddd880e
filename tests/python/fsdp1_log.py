"""What real FSDP (version 1) gathers, lets go and reduces on one rank, in order; for test_fsdp1.py.

A process of its own, on the CPU, with a group of processes that is not there: nothing is sent, and all
that FSDP allocates and keeps is as it would be. Reads a JSON list of cases from stdin, writes the list
of their logs, [phase, kind, bytes] each, to stdout.
"""

import contextlib
import functools
import json
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
from torch.distributed.fsdp import _flat_param, _runtime_utils
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig, AutoModelForCausalLM


class Log:
    """Listens to FSDP's own functions."""

    def __init__(self):
        self.phase, self.entries = "forward", []
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

    def add(self, kind, tensor):
        self.entries.append([self.phase, kind, tensor.numel() * tensor.element_size()])


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
    if case.get("lora_rank"):
        from peft import LoraConfig, get_peft_model
        from peft.utils.other import fsdp_auto_wrap_policy

        model.enable_input_require_grads()
        model = get_peft_model(model, LoraConfig(
            r=case["lora_rank"], target_modules=case["lora_targets"], task_type="CAUSAL_LM"))
        policy = fsdp_auto_wrap_policy(model)
    precision = None
    if case.get("fsdp_compute"):
        dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[case["fsdp_compute"]]
        precision = MixedPrecision(param_dtype=dtype, reduce_dtype=dtype)
        # accelerate keeps what is trained in float32.
        model = model.to(torch.float32)
    return FullyShardedDataParallel(
        model, auto_wrap_policy=policy, use_orig_params=True, mixed_precision=precision,
        device_id=torch.device("cpu")), config


def run(case, log):
    dist.init_process_group("fake", rank=0, world_size=case["ranks"], store=FakeStore())
    with contextlib.ExitStack() as stack:
        stack.callback(dist.destroy_process_group)
        model, config = wrapped_model(case)
        ids = torch.zeros(2, 16, dtype=torch.int64) % config.vocab_size
        log.entries = []
        for _ in range(case["steps"]):
            log.phase = "forward"
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
            log.phase = "backward"
            loss.backward()
            for parameter in model.parameters():
                parameter.grad = None
        return log.entries


def main():
    log = Log()
    json.dump([run(case, log) for case in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
