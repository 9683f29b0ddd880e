// What paged optimizers of bitsandbytes keep where no figure of an answer counts it, in words.
#pragma once

#include <string>

#include "fit/scenario/scenario.h"
#include "model/graph.h"

namespace headroom::fit {

// Empty where nothing is paged.
[[nodiscard]] std::string note_on_paged_states(const Scenario& scenario, const model::Graph& graph);

}  // namespace headroom::fit
