// fms-acceleration's fast kernels ("foak", from unsloth) in a model: RMS norms and rotary
// embeddings as fused kernels, by family. Its losses are transformations of their own
// (fused_loss.h, fused_linear_loss.h), and so is LoRA beside quantized weights (fast_lora.h).
//
// Source: fms_acceleration_foak/models/*.py and framework_plugin_fast_kernels.py, 0.4 to 0.7; held
// against 0.7.4 by tests/python/test_kernels.py.
#pragma once

#include <string_view>

#include "base/result.h"
#include "model/graph.h"
#include "operator/eager.h"
#include "step/transform/fused_loss.h"

namespace headroom::step {

// The Error names an architecture that the plugin does not patch.
[[nodiscard]] Result<model::Graph> apply_fast_kernels(const model::Graph& graph,
                                                      std::string_view model_type);

// What its fast_loss puts into this architecture: before transformers 4.46 there was no loss
// function to replace, only the cross entropy that a model's own code calls.
[[nodiscard]] FusedLoss fast_loss(std::string_view model_type, op::Version transformers);

}  // namespace headroom::step
