// fms-acceleration's fused LoRA: where queries, keys and values, an output projection, or all of a
// gated feed-forward layer have LoRA beside quantized weights, one autograd function runs them.
//
// Apply it behind apply_quantization and apply_lora and before apply_autocast: it takes the place
// of what they wrote. The function for queries runs those for keys and values as well, which wait
// until their modules are called. Modules without adapters, or not quantized, stay as they are.
//
// Source: fms_acceleration_foak models/utils.py, fused_ops/unsloth_lora (0.4 to 0.6).
#pragma once

#include <string_view>

#include "model/graph.h"

namespace headroom::step {

[[nodiscard]] model::Graph apply_fast_lora(const model::Graph& graph, std::string_view model_type);

}  // namespace headroom::step
