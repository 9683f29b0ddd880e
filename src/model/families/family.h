// A family: an architecture of transformers, as the function that turns its config into a Graph.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "model/graph.h"
#include "model/options.h"
#include "text/json.h"

namespace headroom::model {

struct Family {
  std::string_view model_type;  // config.json's "model_type"
  Result<Graph> (*build)(const text::JsonView& config, const BuildOptions& options);
};

// All families, sorted by name.
[[nodiscard]] std::span<const Family> families();

}  // namespace headroom::model
