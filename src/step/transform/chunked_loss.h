// Chunked cross entropy: the head is applied to pieces of the sequence, and each piece's logits get
// a float32 copy and a loss of their own, so that the copies are never all there at once. What
// backward needs of them, their log-probabilities in float32, is.
//
// Source: torchtune (modules/transformer.py chunked_output, modules/loss/ce_chunked_output_loss.py,
// recipes/full_finetune_single_device.py), which takes 8 pieces.
#pragma once

#include "base/result.h"
#include "model/graph.h"

namespace headroom::step {

inline constexpr int64_t kLossChunks = 8;

// The Error is about a number of chunks below 1, or a graph without head or loss.
[[nodiscard]] Result<model::Graph> apply_chunked_loss(const model::Graph& graph,
                                                      int64_t chunks = kLossChunks);

}  // namespace headroom::step
