#pragma once

#include "model/families/family.h"

namespace headroom::model {

Result<Graph> build_smollm3(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
