// axolotl's configuration (0.18): the YAML that `axolotl train` takes.
//
// What is left out has axolotl's defaults: sequences of 512 tokens, one in a micro-batch, bf16
// where the GPU has it, no recomputation; and the Trainer's where axolotl hands nothing on (norms
// clipped at 1). The whole model is loaded in the type that it computes in. What changes memory and
// is not modelled is an Error at its place; members that nobody looked at are in the notes.
//
// Sources: axolotl/utils/schemas/*.py, utils/config/__init__.py, utils/trainer.py,
// loaders/{model,adapter,patch_manager}.py, core/builders/{base,causal}.py, core/trainers/base.py,
// integrations/{liger,cut_cross_entropy} and monkeypatch/accelerate/fsdp2.py at 067b021c.
#pragma once

#include "base/result.h"
#include "engines/trainer.h"
#include "engines/training_setup.h"
#include "text/json.h"

namespace headroom::engines {

[[nodiscard]] bool has_axolotl_arguments(const text::Json& root);

Result<TrainingSetup> read_axolotl(const text::JsonView& root, const ReadNamed& read_named);

}  // namespace headroom::engines
