// Rotary position embeddings as transformers computes and applies them.
#pragma once

#include <utility>

#include "model/builder.h"

namespace headroom::model {

// (cos, sin) in the type of `like`, each [1, sequence, dims]; inverse_frequencies is [dims / 2] in
// float32, position_ids [1, sequence].
std::pair<Var, Var> rotary_tables(GraphBuilder& g, const Var& inverse_frequencies,
                                  const Var& position_ids, const Var& like, int64_t sequence,
                                  int64_t dims);

// x * cos + rotate_half(x) * sin, for query and key [batch, heads, sequence, dims].
std::pair<Var, Var> apply_rotary(GraphBuilder& g, const Var& query, const Var& key, const Var& cos,
                                 const Var& sin, int64_t dims);

}  // namespace headroom::model
