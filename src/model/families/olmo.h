#pragma once

#include "model/families/family.h"

namespace headroom::model {

Result<Graph> build_olmo(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_olmo2(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_olmo3(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
