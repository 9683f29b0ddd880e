// Liger-Kernel's patches of a model, as use_liger_kernel=True in TrainingArguments or
// apply_liger_kernel_to_llama() and its siblings make them: RMS norms, rotary embeddings and gated
// feed-forward layers as fused kernels, by family. The loss that comes with them is a
// transformation of its own (fused_linear_loss.h, fused_loss.h); liger_loss() says which.
//
// Source: Liger-Kernel 0.8 transformers/monkey_patch.py. LayerNorm is patched in vision models
// only.
#pragma once

#include <string_view>

#include "base/result.h"
#include "model/graph.h"

namespace headroom::step {

enum class LigerLoss : uint8_t { fused_linear, cross_entropy };

// Which loss Liger puts into this architecture when nobody says.
[[nodiscard]] LigerLoss liger_loss(std::string_view model_type);

// The Error names an architecture that Liger does not know, or whose patch is not modelled.
[[nodiscard]] Result<model::Graph> apply_liger(const model::Graph& graph,
                                               std::string_view model_type);

}  // namespace headroom::step
