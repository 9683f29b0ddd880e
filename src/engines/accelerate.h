// accelerate's configuration (accelerate 1.15, `accelerate config`): one GPU, DDP, FSDP of both
// versions (hybrid sharding by its parallelism_config), and DeepSpeed's stages 1 to 3 by its
// deepspeed_config. Pure functions.
//
// Sources: accelerate/commands/config/config_args.py, commands/launch.py and utils/launch.py.
#pragma once

#include <string>

#include "base/result.h"
#include "engines/training_setup.h"
#include "text/json.h"

namespace headroom::engines {

// What cannot be modelled (other strategies, say) is an Error at its place.
Result<TrainingSetup> read_accelerate(const text::JsonView& root);

[[nodiscard]] std::string accelerate_yaml(const TrainingSetup& setup);
// What starts it, once on each node.
[[nodiscard]] std::string accelerate_line(const TrainingSetup& setup, const std::string& file);

}  // namespace headroom::engines
