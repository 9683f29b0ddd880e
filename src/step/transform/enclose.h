// Encloses a model's forward function in one region, which is what torch.compile is given of it.
//
// transformers' models are one graph with their losses; where something between the two cannot be
// traced, the loss is a graph of its own. Linear in the graph.
#pragma once

#include <string_view>

#include "model/graph.h"

namespace headroom::step {

// The graph must have no chunks before the last. Regions keep their numbers; the new one is the
// last.
[[nodiscard]] model::Graph enclose(model::Graph graph, std::string_view model_type);

}  // namespace headroom::step
