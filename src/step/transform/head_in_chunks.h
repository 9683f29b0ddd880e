// The head and the loss of a causal model in torchtitan's way (step/head_in_chunks.h): one
// operation over hidden states, the head's weight and labels that are not shifted. So the graph has
// no logits.
#pragma once

#include "base/result.h"
#include "model/graph.h"
#include "step/head_in_chunks.h"

namespace headroom::step {

// The Error is about chunks that do not divide the sequence, a head with a bias or with more than a
// product, and a graph without head or loss. To be applied before tensor parallelism.
[[nodiscard]] Result<model::Graph> apply_head_in_chunks(const model::Graph& graph,
                                                        const HeadInChunks& options);

}  // namespace headroom::step
