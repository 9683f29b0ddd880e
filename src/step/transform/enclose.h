// Encloses what torch.compile is given of a model: its forward function in one region, or, where
// something in it cannot be traced, in one region before that and others behind it.
//
// transformers' models are one graph with their losses, but for two breaks: where an embedding is
// told to require gradients (checkpoints over frozen weights), behind which the head and the loss
// are apart from the layers, since a function that broke is gone on with function by function; and
// GPT-2's loss. Linear in the graph.
#pragma once

#include <string_view>

#include "base/result.h"
#include "model/graph.h"

namespace headroom::step {

// The graph must have no chunks before the last. Regions keep their numbers; new ones are the last.
// Errors: usage, where it breaks in more places than these.
[[nodiscard]] Result<model::Graph> enclose(model::Graph graph, std::string_view model_type);

}  // namespace headroom::step
