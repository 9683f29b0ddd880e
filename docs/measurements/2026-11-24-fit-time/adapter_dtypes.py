"""Which types a LoRA adapter computes in under FSDP1 with mixed precision, on CPU processes.

    torchrun --nproc_per_node 2 adapter_dtypes.py
    torchrun --nproc_per_node 1 adapter_dtypes.py plain      (one process, no FSDP)

One layer with an adapter beside q_proj, each matrix wrapped as PEFT has it, under autocast as a
Trainer's bf16 is. Prints the operators of q_proj's forward and of all of backward, with types.
"""

import os
import sys

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from peft.utils.other import fsdp_auto_wrap_policy
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import MistralConfig, MistralForCausalLM

NO_KERNELS = ("view", "transpose", "detach", "alias", "aten::t", "expand", "as_strided", "split",
              "c10d", "empty", "slice", "profiler")


def words(value):
    is_tensor = isinstance(value, torch.Tensor)
    return f"{str(value.dtype)[6:]}{list(value.shape)}" if is_tensor else "..."


class Watch(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.is_on = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        shown = self.is_on and dist.get_rank() == 0
        if shown and not any(word in func.name() for word in NO_KERNELS):
            given = ", ".join(words(a) for a in args if isinstance(a, torch.Tensor))
            print(f"{func.name():32} {given} -> {words(result)}")
        return result


def made(is_plain):
    torch.manual_seed(0)
    config = MistralConfig(vocab_size=128, hidden_size=64, intermediate_size=96,
                           num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2)
    lora = LoraConfig(r=8, lora_dropout=0.1, target_modules=["q_proj"])
    model = get_peft_model(MistralForCausalLM(config).to(torch.bfloat16), lora)
    if is_plain:
        return model
    os.environ["FSDP_TRANSFORMER_CLS_TO_WRAP"] = "MistralDecoderLayer"
    half = torch.bfloat16
    return FullyShardedDataParallel(
        model, auto_wrap_policy=fsdp_auto_wrap_policy(model), use_orig_params=True,
        mixed_precision=MixedPrecision(param_dtype=half, reduce_dtype=half, buffer_dtype=half),
        device_id=torch.device("cpu"))


def main():
    dist.init_process_group("gloo")
    model = made("plain" in sys.argv)
    watch = Watch()
    query = next(m for name, m in model.named_modules() if name.endswith("q_proj"))
    query.register_forward_pre_hook(lambda *_: setattr(watch, "is_on", True))
    query.register_forward_hook(lambda *_: setattr(watch, "is_on", False))
    tokens = torch.randint(0, 128, (2, 16))
    with watch:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        if dist.get_rank() == 0:
            print("--- backward")
        watch.is_on = True
        loss.backward()
        watch.is_on = False


if __name__ == "__main__":
    main()
