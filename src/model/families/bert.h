// BERT, trained to fill in masked tokens.
#pragma once

#include "model/families/family.h"

namespace headroom::model {

Result<Graph> build_bert(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
