#pragma once

#include "model/families/family.h"

namespace headroom::model {

Result<Graph> build_gptj(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_codegen(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
