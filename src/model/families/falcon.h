// Falcon, with rotary positions or ALiBi.
#pragma once

#include "model/families/family.h"

namespace headroom::model {

Result<Graph> build_falcon(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
