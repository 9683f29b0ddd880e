// enable_input_require_grads: what the input embedding answers with requires a gradient, though the
// embedding itself may be frozen, so that checkpointed layers behind it get theirs.
//
// Since 5.0 transformers does so wherever a model is checkpointed (its pull request 42558), before
// only under peft.
#pragma once

#include "model/graph.h"

namespace headroom::step {

// Whether this ends the module that get_input_embeddings answers with: the first one of the model.
// REQUIRES: `operation` is one of graph.operations.
[[nodiscard]] bool is_input_embedding(const model::Graph& graph, const model::Operation& operation);

[[nodiscard]] model::Graph require_input_gradients(const model::Graph& graph);

// The instruction that ends a module, for who has hooks around it: `end`, or the one behind it that
// asks for a gradient of what the module answers with, since that is a hook that was there before.
// REQUIRES: instruction `end` is an operation.
[[nodiscard]] uint32_t end_with_hook(const model::Graph& graph, uint32_t end);

}  // namespace headroom::step
