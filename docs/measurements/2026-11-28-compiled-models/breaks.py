"""Into how many graphs torch.compile makes a model, and why: configuration|setting|graphs|reasons.

    python breaks.py > breaks.txt

Each of tests/python/configs, small, with labels; Llama with LoRA; all in bf16 on a CPU.
"""

import json
import pathlib
import warnings

import peft
import torch
import torch._dynamo
import transformers

CONFIGS = pathlib.Path(__file__).parents[3] / "tests/python/configs"
LLAMA = {"model_type": "llama", "hidden_size": 256, "intermediate_size": 896,
         "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 2000,
         "max_position_embeddings": 1024, "num_hidden_layers": 2}
BY_HAND = {"bert": "BertForMaskedLM", "t5": "T5ForConditionalGeneration",
           "t5_gated": "T5ForConditionalGeneration", "vit": "ViTForImageClassification"}


def model_of(name, config):
    config = transformers.AutoConfig.for_model(**config)
    named = (getattr(config, "architectures", None) or [BY_HAND.get(name)])[0]
    model = (getattr(transformers, named)(config) if named
             else transformers.AutoModelForCausalLM.from_config(config))
    if hasattr(model.config, "use_cache"):
        model.config.use_cache = False
    return model.to(torch.bfloat16).train()


def inputs_of(model):
    if hasattr(model.config, "image_size") and hasattr(model.config, "num_channels"):
        size = model.config.image_size
        pixels = torch.zeros(2, model.config.num_channels, size, size, dtype=torch.bfloat16)
        return {"pixel_values": pixels, "labels": torch.zeros(2, dtype=torch.int64)}
    ids = torch.zeros(2, 32, dtype=torch.int64)
    return {"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)}


def report(name, setting, model):
    torch._dynamo.reset()
    try:
        found = torch._dynamo.explain(model)(**inputs_of(model))
        reasons = [str(reason.reason).split("\n")[0][:90] for reason in found.break_reasons]
        print(name, setting, found.graph_count, *reasons, sep="|", flush=True)
    except Exception as error:  # of one model: the others are still looked at
        print(name, setting, "error", str(error).split("\n")[0][:90], sep="|", flush=True)


def main():
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    for path in sorted(CONFIGS.glob("*.json")):
        report(path.stem, "plain", model_of(path.stem, json.loads(path.read_text())))
    for name in ("t5", "t5_gated"):
        model = model_of(name, json.loads((CONFIGS / f"{name}.json").read_text()))
        model.gradient_checkpointing_enable({"use_reentrant": False})
        report(name, "checkpoints", model)
    for checkpoints in (False, True):
        model = model_of("llama", LLAMA)
        if checkpoints:
            model.gradient_checkpointing_enable({"use_reentrant": False})
            model.enable_input_require_grads()
        adapters = peft.LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM")
        report("llama with LoRA", "checkpoints" if checkpoints else "plain",
               peft.get_peft_model(model, adapters).train())


if __name__ == "__main__":
    main()
