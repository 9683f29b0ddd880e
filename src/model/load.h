// From a config.json to a Graph: finds the family by "model_type" and builds it.
//
// An unknown architecture is an error that names it; `assume` names a family to use in its place,
// and the caller marks what comes of it as extrapolated.
#pragma once

#include <string>
#include <string_view>

#include "model/families/family.h"

namespace headroom::model {

struct Assumption {
  std::string_view family;  // empty: none
};

// The family of this config. Errors: no or unknown model_type, unknown assumption.
Result<const Family*> find_family(const text::JsonView& config, const Assumption& assume = {});

Result<Graph> build_graph(const text::JsonView& config, const BuildOptions& options,
                          const Assumption& assume = {});

}  // namespace headroom::model
