#pragma once

#include "model/graph.h"
#include "model/options.h"
#include "text/json.h"

namespace headroom::model {

Result<Graph> build_minimax(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
