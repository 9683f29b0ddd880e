// T5, an encoder and a decoder.
#pragma once

#include "model/families/family.h"

namespace headroom::model {

Result<Graph> build_t5(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
