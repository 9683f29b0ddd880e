// Tensor parallelism of one rank as Colossal-AI's 1D has it by default, which is not Megatron-LM's:
// every linear module, whatever stands before or behind it, takes its part of a whole input and
// sums what it answers over the ranks, the head too; embeddings hold a part of the columns, which
// are gathered. So between modules all is whole on every rank: attention and elementwise work is
// divided among none, and logits are summed.
//
// Source: ColoLinear and ColoEmbedding ("row" and "col" are their default modes), colo_linear_1drow
// and colo_embedding_1Dcol, in Colossal-AI as the authors of LLMem (arXiv 2404.10933) publish it.
// Cost: linear.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "model/graph.h"

namespace headroom::step {

// Whether that divides this parameter: weights of linear modules and of embeddings, not biases.
[[nodiscard]] bool is_colossal_divided(const model::Parameter& parameter);

// Apply it to the model as built, before autocast. Errors: features that the ranks do not divide,
// linear modules that are no torch.nn.Linear (GPT-2's Conv1D), experts.
[[nodiscard]] Result<model::Graph> apply_colossal_tensor(const model::Graph& graph, int64_t ranks);

}  // namespace headroom::step
