// A script that starts LLaMA-Factory or axolotl with the file that has the setting:
//
//   accelerate launch --config_file fsdp.yaml src/train.py llama3_sft.yaml
//   FORCE_TORCHRUN=1 NNODES=2 NPROC_PER_NODE=8 llamafactory-cli train llama3_sft.yaml
//   axolotl train qwen3.yaml
//
// Nothing is run. What the launcher is told comes to what the file says, and so do LLaMA-Factory's
// members behind the file (cutoff_len=4096); axolotl's flags there are an Error.
//
// Sources: llamafactory/launcher.py, axolotl/cli/main.py.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "engines/trainer.h"
#include "text/json.h"

namespace headroom::engines {

[[nodiscard]] bool is_config_script(std::string_view content);

// The file's members, with those of the launcher. REQUIRES: is_config_script().
Result<text::Json> arguments_of_config_script(std::string_view content, const std::string& file,
                                              const ReadNamed& read_named);

}  // namespace headroom::engines
