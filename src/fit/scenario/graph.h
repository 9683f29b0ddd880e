// The graph of a Scenario: the model as its family builds it, and the transformations that the
// question's settings ask for, in the order in which libraries apply them.
#pragma once

#include <memory>

#include "fit/scenario/scenario.h"
#include "model/graph.h"

namespace headroom::fit {

using GraphPointer = std::shared_ptr<const model::Graph>;

// REQUIRES (both): the scenario has no trace.
Result<GraphPointer> built_graph_of(const Scenario& scenario);
// `built` itself where nothing is to be rewritten.
Result<GraphPointer> graph_of(const Scenario& scenario, GraphPointer built);

}  // namespace headroom::fit
