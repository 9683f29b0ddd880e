// A model of one of several ranks that share each sequence: attention is among them
// (operator/ring_attention.cpp). The graph is of a rank's part of the sequence already.
//
// The Error is about attention that PyTorch's context_parallel does not take: another than
// scaled_dot_product_attention, or with a mask. Cost: linear.
// Source: torch/distributed/tensor/experimental/_context_parallel/_attention.py.
#pragma once

#include "base/result.h"
#include "model/graph.h"

namespace headroom::step {

[[nodiscard]] Result<model::Graph> apply_context_parallel(model::Graph graph, int64_t ranks);

}  // namespace headroom::step
