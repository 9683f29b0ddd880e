// ELECTRA, trained to fill in masked tokens (its generator) or to classify sequences.
#pragma once

#include "model/families/family.h"

namespace headroom::model {

Result<Graph> build_electra(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
