// Fused linear cross entropy: lm_head and the loss in one operator that never has all the logits.
//
// The forward function of a causal model hands its hidden states to Liger-Kernel's operator instead
// of making logits; labels are shifted as in the model's own loss. So the graph has no logits.
//
// Source: Liger-Kernel 0.8 (transformers/model/llama.py, loss_utils.py); for fms-acceleration its
// plugin's fused_ops/liger_ce/fused_linear_cross_entropy_loss.py, which shifts the hidden states.
#pragma once

#include "base/result.h"
#include "model/graph.h"
#include "operator/fused_kernels.h"

namespace headroom::step {

struct FusedLinearLossOptions {
  op::LigerLinearLoss loss;
  bool shifts_hidden = false;  // the last position is cut from the hidden states, by a copy
};

// Logits that are capped by tanh are capped within the kernel. The Error is about logits that are
// changed otherwise (Granite scales them), or about a graph without head or loss.
[[nodiscard]] Result<model::Graph> apply_fused_linear_loss(
    const model::Graph& graph, const FusedLinearLossOptions& options = {});

}  // namespace headroom::step
