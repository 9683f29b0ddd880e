// DeepSpeed's configuration (0.19): ZeRO's stages 1 and 2 without offload. Pure functions.
//
// "auto" is what HF's Trainer fills in from its own arguments: nothing, here. Source:
// deepspeed/runtime/config.py and deepspeed/runtime/zero/config.py.
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
