// What quantizing a model's weights leaves as it is, in words.
#pragma once

#include <string>

#include "fit/scenario.h"
#include "model/graph.h"

namespace headroom::fit {

// Of a QLoRA whose graph has experts as parameters of three dimensions; empty for any other.
[[nodiscard]] std::string note_on_unquantized_experts(const Scenario& scenario,
                                                      const model::Graph& graph);

}  // namespace headroom::fit
