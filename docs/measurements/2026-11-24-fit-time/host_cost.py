"""What the host takes for an operator, and around a gather or a reduction of FSDP1's.

    OMP_NUM_THREADS=1 torchrun --nproc_per_node 2 host_cost.py

A decoder with LoRA whose tensors are so small that operators take what starting them takes: a step
with reentrant checkpoints, plain and wrapped by FSDP1 with each adapter's matrix a unit. Time is
that of the main thread's processor alone, so what gloo's threads take is not in it, nor waiting.
"""

import os
import statistics
import time
import warnings

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from peft.utils.other import fsdp_auto_wrap_policy
from torch.distributed.fsdp import FullyShardedDataParallel, _flat_param, _runtime_utils
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import MistralConfig, MistralForCausalLM

NO_KERNELS = ("view", "transpose", "detach", "alias", "aten::t", "expand", "as_strided", "split",
              "slice", "unsqueeze", "select", "empty", "record_function", "permute", "squeeze",
              "c10d")
TOKENS = torch.zeros((1, 4), dtype=torch.int64)
counted = {"operators": 0, "collectives": 0}


class Count(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        counted["operators"] += not any(word in func.name() for word in NO_KERNELS)
        return func(*args, **(kwargs or {}))


def count_calls(owner, name):
    original = getattr(owner, name)

    def calls(*args, **kwargs):
        counted["collectives"] += 1
        return original(*args, **kwargs)

    setattr(owner, name, calls)


def made(is_wrapped):
    torch.manual_seed(0)
    config = MistralConfig(vocab_size=64, hidden_size=32, intermediate_size=32, use_cache=False,
                           num_hidden_layers=8, num_attention_heads=4, num_key_value_heads=2)
    lora = LoraConfig(r=4, lora_dropout=0.1,
                      target_modules=["q_proj", "k_proj", "v_proj", "o_proj"])
    model = get_peft_model(MistralForCausalLM(config), lora)
    model.enable_input_require_grads()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    model.train()
    if not is_wrapped:
        return model
    return FullyShardedDataParallel(model, auto_wrap_policy=fsdp_auto_wrap_policy(model),
                                    use_orig_params=True, device_id=torch.device("cpu"))


def step(model):
    model(input_ids=TOKENS, labels=TOKENS).loss.backward()


def seconds_of(model):
    taken = []
    for _ in range(15):
        begin = time.thread_time()
        step(model)
        taken.append(time.thread_time() - begin)
    return statistics.median(taken)


def counts_of(model):
    counted.update(operators=0, collectives=0)
    with Count():
        step(model)
    return dict(counted)


def main():
    warnings.filterwarnings("ignore")
    os.environ["FSDP_TRANSFORMER_CLS_TO_WRAP"] = "MistralDecoderLayer"
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    count_calls(_flat_param.FlatParamHandle, "_all_gather_flat_param")
    count_calls(_runtime_utils, "_reduce_grad")
    plain, wrapped = made(False), made(True)
    for model in (plain, plain, wrapped, wrapped):
        step(model)
    alone, sharded = counts_of(plain), counts_of(wrapped)
    for _ in range(3):
        one = seconds_of(plain) / alone["operators"]
        more = seconds_of(wrapped) - sharded["operators"] * one
        if dist.get_rank() == 0:
            print(f"{alone['operators']} operators, {1e6 * one:.1f} us each; "
                  f"{sharded['collectives']} gathers and reductions, "
                  f"{1e6 * more / sharded['collectives']:.0f} us each")


if __name__ == "__main__":
    main()
