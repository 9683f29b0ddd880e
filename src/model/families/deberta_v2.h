// DeBERTa-v2 and -v3, trained to fill in masked tokens or to classify sequences.
#pragma once

#include "model/families/family.h"

namespace headroom::model {

Result<Graph> build_deberta_v2(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
