#pragma once

#include "model/families/family.h"

namespace headroom::model {

Result<Graph> build_glm(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_glm4(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
