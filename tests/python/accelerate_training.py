"""A tiny model trained by accelerate as its launcher's environment says; for test_setup_files.py.

A process of several, on the CPU. accelerate takes FSDP's environment on GPUs alone, so its state is told by hand that the
kind is FSDP; the plugin, its settings and what is made of the model are accelerate's own. Rank 0 prints JSON: FSDP's
version and units, among how many its parameters are divided, how many are whole, and the losses.
"""

import json

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from transformers import AutoConfig, AutoModelForCausalLM

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2}


def main():
    torch.manual_seed(0)
    accelerator = Accelerator()
    state = AcceleratorState()
    state.distributed_type = DistributedType.FSDP
    state.fsdp_plugin = FullyShardedDataParallelPlugin()
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **SIZES))
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    losses = []
    ids = torch.arange(16).reshape(2, 8)
    for _ in range(4):
        loss = model(input_ids=ids, labels=ids).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    units = [module for module in model.modules() if isinstance(module, FSDPModule)]
    sharded = {parameter.device_mesh.size() for parameter in model.parameters() if isinstance(parameter, DTensor)}
    if accelerator.is_main_process:
        print(json.dumps({"version": state.fsdp_plugin.fsdp_version, "units": len(units), "among": sorted(sharded),
                          "whole": sum(not isinstance(p, DTensor) for p in model.parameters()), "losses": losses}))
    accelerator.end_training()


if __name__ == "__main__":
    main()
