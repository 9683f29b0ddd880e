// The graph of a Scenario: the model as its family builds it, and the transformations that the
// question's settings ask for, in the order in which libraries apply them.
#pragma once

#include "fit/scenario.h"
#include "model/graph.h"

namespace headroom::fit {

Result<model::Graph> graph_of(const Scenario& scenario);

}  // namespace headroom::fit
