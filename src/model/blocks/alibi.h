// ALiBi (arXiv 2108.12409): a slope a head, which a position's distance is multiplied by, in place
// of position embeddings (BLOOM, Falcon-RW).
#pragma once

#include <vector>

#include "model/builder.h"

namespace headroom::model {

// [heads] in float32, as build_alibi_tensor makes them. `held` takes what its variables hold until
// it returns.
Var alibi_slopes(GraphBuilder& g, int64_t heads, std::vector<Var>* held = nullptr);

}  // namespace headroom::model
