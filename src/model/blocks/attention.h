// The attention interface of transformers: eager, scaled_dot_product_attention, FlashAttention-2.
#pragma once

#include "model/builder.h"
#include "model/options.h"

namespace headroom::model {

struct AttentionShape {
  int64_t batch = 0;
  int64_t sequence = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  double dropout = 0;
  bool causal = true;
  bool softcap = false;  // scores are bounded by a tanh (Gemma 2), in the eager implementation
};

struct Attended {
  Var output;   // [batch, sequence, heads, head], contiguous
  Var weights;  // what the eager implementation returns beside it; the caller's `_` keeps it alive
};

// query [batch, heads, sequence, head]; key and value with kv_heads; mask may be empty.
Attended attend(GraphBuilder& g, const BuildOptions& options, const AttentionShape& shape,
           const Var& query, const Var& key, const Var& value, const Var& mask);

}  // namespace headroom::model
