#pragma once

#include "model/families/family.h"

namespace headroom::model {

Result<Graph> build_qwen2(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_qwen3(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
