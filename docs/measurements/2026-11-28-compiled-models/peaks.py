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

import peft
import torch
import transformers

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
RUNS = [(name, layers, False, 1) for name in MODELS for layers in (4,)] + [
    ("llama", 12, False, 1), ("phi3", 12, False, 1), ("llama", 4, False, 2), ("llama", 4, True, 1)]


def theirs(config, layers, checkpoints, has_lora, batches, compiles):
    torch._dynamo.reset()
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**config, **layers_of(config, layers)),
        attn_implementation="sdpa").to(torch.bfloat16)
    model.config.use_cache = False
    if checkpoints:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        if has_lora:
            model.enable_input_require_grads()
    if has_lora:
        model = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules=TARGETS, task_type="CAUSAL_LM"),
                                    autocast_adapter_dtype=False)
    return peak_in_torch(torch.compile(model.train()) if compiles else model.train(), batches)


def ours(config, layers, checkpoints, has_lora, batches, compiles):
    words = {"lora_rank": 8, "lora_targets": ",".join(TARGETS), "lora_dtype": "bfloat16"} if has_lora else {}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({**config, **layers_of(config, layers)}, file)
        file.flush()
        events = step_dump.run(
            file.name, batch=2, seq=512, dtype="bfloat16", attention="sdpa", optimizer="sgd",
            sdpa="efficient" if compiles else "flash", compile="model" if compiles else "none",
            checkpointing="non_reentrant" if checkpoints else "none", accumulation=batches, **words)["events"]
    passes = [e for e in events if e["step"] == 1 and e["phase"] in ("forward", "backward")]
    before = passes[0]["live"] - sum(passes[0]["allocs"]) + sum(passes[0]["frees"])
    return max(e["live"] + sum(e["frees"]) for e in passes) - before


def main():
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["model", "layers", "trained", "micro_batches", "checkpoints", "run", "pytorch_bytes", "ours_bytes",
                  "difference_pct"])
    for name, layers, has_lora, batches in RUNS:
        for checkpoints in (False, True):
            for compiles in (False, True):
                setting = (MODELS[name], layers, checkpoints, has_lora, batches, compiles)
                real, made = theirs(*setting), ours(*setting)
                out.writerow([name, layers, "lora" if has_lora else "full", batches,
                              "every layer" if checkpoints else "none", "compiled" if compiles else "eager", real, made,
                              f"{100 * (made - real) / real:.2f}"])
                sys.stdout.flush()


if __name__ == "__main__":
    main()
