// `headroom ops --model`: a step of a model that nobody has run.
#pragma once

#include "cli/verb.h"

namespace headroom::cli {

std::vector<Flag> ops_model_flags();
Result<int> run_ops_model(const Words& words, const Console& console);

}  // namespace headroom::cli
