#pragma once

#include "model/families/family.h"

namespace headroom::model {

Result<Graph> build_hunyuan_v1_dense(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
