"""LoRA beside tensor parallelism within fully_shard and DDP, four processes joined by gloo: what each way ends with.

    python adapters_in_two_ways.py

transformers: from_pretrained(distributed_config=DistributedConfig(tp_size=2, fsdp_size=2)), then peft. accelerate: its
ParallelismConfig of two by two, told by hand that the kind is FSDP, which it takes on GPUs alone.
"""

import os
import subprocess
import sys
import tempfile

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2}


def loaded_by_transformers(folder):
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.distributed import DistributedConfig

    torch.distributed.init_process_group("gloo")
    return AutoModelForCausalLM.from_pretrained(folder, distributed_config=DistributedConfig(tp_size=2, fsdp_size=2)), lambda model: model


def loaded_by_accelerate(folder, **sizes):
    import torch
    from accelerate import Accelerator
    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.state import AcceleratorState
    from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
    from transformers import AutoModelForCausalLM

    parallelism = ParallelismConfig(tp_size=2, **sizes)
    ParallelismConfig._validate_accelerator = lambda *_: None
    accelerator = Accelerator(parallelism_config=parallelism)
    state = AcceleratorState()
    state.distributed_type, state.fsdp_plugin = DistributedType.FSDP, FullyShardedDataParallelPlugin(fsdp_version=2)
    mesh = accelerator.torch_device_mesh["tp"]
    model = AutoModelForCausalLM.from_pretrained(folder, tp_plan="auto", device_mesh=mesh)
    return model, lambda adapted: accelerator.prepare(adapted, torch.optim.AdamW(adapted.parameters()))[0]


def step(way, folder, targets):
    import torch
    from peft import LoraConfig, get_peft_model

    load = {"transformers": lambda: loaded_by_transformers(folder),
            "accelerate-fsdp2": lambda: loaded_by_accelerate(folder, dp_shard_size=2),
            "accelerate-ddp": lambda: loaded_by_accelerate(folder, dp_replicate_size=2)}[way]
    model, prepare = load()
    model = prepare(get_peft_model(model, LoraConfig(r=4, target_modules=targets.split(","), task_type="CAUSAL_LM")))
    ids = torch.arange(16)[None]
    model(input_ids=ids, labels=ids).loss.backward()


def rank(way, folder, targets):
    try:
        step(way, folder, targets)
        ended = "no error"
    except Exception as error:  # whatever a library raises is the answer
        ended = f"{type(error).__name__}: {str(error)[:160]}"
    if os.environ["RANK"] == "0":
        print(f"{way}, {targets}: {ended}", flush=True)
    os._exit(0)


def main():
    from transformers import AutoModelForCausalLM, LlamaConfig

    with tempfile.TemporaryDirectory() as folder:
        AutoModelForCausalLM.from_config(LlamaConfig(**SIZES)).save_pretrained(folder)
        for way, targets in (("transformers", "q_proj,v_proj"), ("transformers", "o_proj"), ("transformers", "gate_proj,down_proj"),
                             ("accelerate-fsdp2", "q_proj,v_proj"), ("accelerate-ddp", "q_proj,v_proj")):
            subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4", __file__, way, folder, targets],
                           check=False, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    rank(*sys.argv[1:]) if len(sys.argv) > 1 else main()
