#pragma once

#include "model/families/family.h"

namespace headroom::model {

Result<Graph> build_cohere(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_cohere2(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
