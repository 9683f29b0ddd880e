// DeepSpeed's configuration (0.19): ZeRO's stages, and offload to the CPU. Pure functions.
//
// "auto" is what HF's Trainer fills in from its own arguments: nothing, here; but three counts it
// and accelerate take from the model's hidden size. Source: deepspeed/runtime/config.py,
// deepspeed/runtime/zero/config.py, transformers/integrations/deepspeed.py.
#pragma once

#include <string>

#include "base/result.h"
#include "engines/training_setup.h"
#include "text/json.h"

namespace headroom::engines {

// The number of GPUs follows from train_batch_size; a file without it leaves `ranks` at 1.
Result<TrainingSetup> read_deepspeed(const text::JsonView& root);

[[nodiscard]] std::string deepspeed_json(const TrainingSetup& setup);
// What starts it, once on each node; HF's Trainer takes the file by this flag.
[[nodiscard]] std::string deepspeed_line(const TrainingSetup& setup, const std::string& file);

}  // namespace headroom::engines
