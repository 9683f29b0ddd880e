// GPT-NeoX and Pythia.
#pragma once

#include "model/families/family.h"

namespace headroom::model {

Result<Graph> build_gpt_neox(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
