"""What a step's passes hold at most, of PyTorch's CPU allocator and of ours: eager and compiled whole.

    HEADROOM_STEP_DUMP=build/dev/tests/headroom_step_dump OMP_NUM_THREADS=1 python peaks.py > peaks.csv

PyTorch's comes of every allocation and release that its profiler saw in a second step, forward and
backward, beyond what was there before. Ours is the same of the symbolic step. Two sequences of 512
tokens in bfloat16, a padding mask of ones, hidden size 256, vocabulary 2,000.
"""

import csv
import json
import sys
import tempfile
import warnings
from pathlib import Path

import accelerate
import peft
import torch
import transformers
from accelerate.state import AcceleratorState

sys.path.insert(0, str(Path(__file__).parents[3] / "tests" / "python"))
import step_dump  # noqa: E402
from test_compile import WIDE, layers_of, peak_in_torch  # noqa: E402

MODELS = {
    "llama": {"model_type": "llama", **WIDE},
    "qwen2": {"model_type": "qwen2", **WIDE},
    "qwen3": {"model_type": "qwen3", "head_dim": 32, **WIDE},
    "phi3": {"model_type": "phi3", "pad_token_id": 0, **WIDE},
    "gpt2": {"model_type": "gpt2", "n_embd": 256, "n_head": 8, "vocab_size": 2000, "n_positions": 512,
             "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "bos_token_id": 1, "eos_token_id": 2},
}
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
BF16 = {"weights": "bfloat16", "autocast": False}
AUTOCAST = {"weights": "float32", "autocast": True}  # as accelerate has it
RUNS = [{"model": name, "layers": 4, "lora": False, "batches": 1, **BF16} for name in MODELS] + [
    {"model": "llama", "layers": 12, "lora": False, "batches": 1, **BF16},
    {"model": "phi3", "layers": 12, "lora": False, "batches": 1, **BF16},
    {"model": "llama", "layers": 4, "lora": False, "batches": 2, **BF16},
    {"model": "llama", "layers": 4, "lora": True, "batches": 1, **BF16},
    {"model": "llama", "layers": 4, "lora": False, "batches": 1, **AUTOCAST},
    {"model": "llama", "layers": 4, "lora": True, "batches": 1, **AUTOCAST},
    {"model": "llama", "layers": 12, "lora": True, "batches": 1, **AUTOCAST},
]


def theirs(run, checkpoints, compiles):
    torch._dynamo.reset()
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**MODELS[run["model"]], **layers_of(MODELS[run["model"]], run["layers"])),
        attn_implementation="sdpa").to(getattr(torch, run["weights"]))
    model.config.use_cache = False
    if checkpoints:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        if run["lora"]:
            model.enable_input_require_grads()
    if run["lora"]:
        model = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules=TARGETS, task_type="CAUSAL_LM"),
                                    autocast_adapter_dtype=False)
    model.train()
    if run["autocast"]:
        AcceleratorState._reset_state(True)
        model = accelerate.Accelerator(mixed_precision="bf16", cpu=True).prepare_model(model)
    return peak_in_torch(torch.compile(model) if compiles else model, run["batches"])


def ours(run, checkpoints, compiles):
    words = {"lora_rank": 8, "lora_targets": ",".join(TARGETS), "lora_dtype": run["weights"]} if run["lora"] else {}
    if run["autocast"]:
        words |= {"autocast": "bfloat16", "outputs_to_float32": 1}
    config = MODELS[run["model"]]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({**config, **layers_of(config, run["layers"])}, file)
        file.flush()
        events = step_dump.run(
            file.name, batch=2, seq=512, dtype=run["weights"], attention="sdpa", optimizer="sgd",
            sdpa="efficient" if compiles else "flash",
            compile="model" if compiles else "none", checkpointing="non_reentrant" if checkpoints else "none",
            accumulation=run["batches"], **words)["events"]
    passes = [e for e in events if e["step"] == 1 and e["phase"] in ("forward", "backward")]
    before = passes[0]["live"] - sum(passes[0]["allocs"]) + sum(passes[0]["frees"])
    return max(e["live"] + sum(e["frees"]) for e in passes) - before


def main():
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["model", "layers", "trained", "micro_batches", "weights", "autocast", "checkpoints", "run",
                  "pytorch_bytes", "ours_bytes", "difference_pct"])
    for run in RUNS:
        for checkpoints in (False, True):
            for compiles in (False, True):
                real, made = theirs(run, checkpoints, compiles), ours(run, checkpoints, compiles)
                out.writerow([run["model"], run["layers"], "lora" if run["lora"] else "full", run["batches"],
                              run["weights"], "bfloat16" if run["autocast"] else "none",
                              "every layer" if checkpoints else "none", "compiled" if compiles else "eager", real, made,
                              f"{100 * (made - real) / real:.2f}"])
                sys.stdout.flush()


if __name__ == "__main__":
    main()
