#pragma once

#include "model/families/family.h"

namespace headroom::model {

Result<Graph> build_helium(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
