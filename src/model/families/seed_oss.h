#pragma once

#include "model/families/family.h"

namespace headroom::model {

Result<Graph> build_seed_oss(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
