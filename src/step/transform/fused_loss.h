// A fused cross entropy over whole logits, which writes their gradient over them: Liger-Kernel's in
// the forward pass, or that of fms-acceleration (from unsloth) in the backward pass.
//
// What comes before it, the float32 copy of the logits and the shift, stays as the model has it, or
// is fms-acceleration's own loss function, which copies the shifted logits as transformers did
// until 4.49. So what is saved are the log-probabilities and the gradient beside the logits.
//
// Source: Liger-Kernel 0.8 (transformers/functional.py, put in the place of
// torch.nn.functional.cross_entropy); fms_acceleration_foak kernels/unsloth/cross_entropy_loss.py.
#pragma once

#include "base/result.h"
#include "model/graph.h"

namespace headroom::step {

enum class FusedLoss : uint8_t {
  liger,        // in the place of cross entropy
  fast,         // in the place of cross entropy (FastCrossEntropyLoss)
  fast_causal,  // in the place of the model's loss function (FastForCausalLMLoss)
};

// The Error is about a graph without head or loss.
[[nodiscard]] Result<model::Graph> apply_fused_loss(const model::Graph& graph, FusedLoss kind);

}  // namespace headroom::step
