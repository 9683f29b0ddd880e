// Adapters of a pipeline, each of whose stages is a model of its own to peft: it takes none without
// a module to adapt.
#pragma once

#include <string_view>

#include "base/result.h"
#include "fit/scenario/scenario.h"
#include "model/graph.h"

namespace headroom::fit {

// The Error says which stages have the modules that this one, of this graph, is without; or what
// adapter_sites() says, where the whole model has none.
Result<void> check_stage_adapters(const Scenario& scenario, const model::Graph& graph,
                                  std::string_view model_type);

}  // namespace headroom::fit
