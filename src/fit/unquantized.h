// What is special about experts that are parameters of three dimensions, in words.
#pragma once

#include <string>

#include "fit/scenario/scenario.h"
#include "model/graph.h"

namespace headroom::fit {

// Of weights that bitsandbytes quantizes whose graph has experts as parameters of three dimensions;
// empty for any other.
[[nodiscard]] std::string note_on_unquantized_experts(const Scenario& scenario,
                                                      const model::Graph& graph);

// Of adapters on all linear modules of such a model, of which peft adapts the experts and routers
// of some types; empty for any other.
[[nodiscard]] std::string note_on_adapted_experts(const Scenario& scenario,
                                                  const model::Graph& graph);

}  // namespace headroom::fit
