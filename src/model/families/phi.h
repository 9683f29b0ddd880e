// Phi 1, 1.5 and 2.
#pragma once

#include "model/families/family.h"

namespace headroom::model {

Result<Graph> build_phi(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
