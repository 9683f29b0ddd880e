// LLaMA-Factory's arguments (August 2026): the YAML or JSON that `llamafactory-cli train` takes, or
// a script whose command has them. They are the Trainer's (trainer.h) and its own: of the model, of
// what is trained of it, and of the length of a sequence.
//
// What is left out has its own defaults: LoRA of rank 8 on every linear module but the head,
// activations checkpointed, sequences of 2048 tokens. What is trained is float32, unless pure_bf16
// says otherwise; weights that are not are as their checkpoint keeps them, taken in half precision.
// What changes memory and is not modelled is an Error at its place.
//
// Sources: llamafactory/hparams/*.py, model/adapter.py, model/loader.py, model/patcher.py,
// model/model_utils/{checkpointing,quantization,attention,liger_kernel,misc}.py, data/collator.py
// and data/processor/supervised.py at ff6d4d12.
#pragma once

#include "base/result.h"
#include "engines/trainer.h"
#include "engines/training_setup.h"
#include "text/json.h"

namespace headroom::engines {

[[nodiscard]] bool has_llama_factory_arguments(const text::Json& root);

Result<TrainingSetup> read_llama_factory(const text::JsonView& root, const ReadNamed& read_named);

}  // namespace headroom::engines
