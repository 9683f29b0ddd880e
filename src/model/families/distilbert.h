// DistilBERT, trained to fill in masked tokens or to classify sequences.
#pragma once

#include "model/families/family.h"

namespace headroom::model {

Result<Graph> build_distilbert(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
