// The attention interface of transformers: eager, scaled_dot_product_attention, FlashAttention-2.
#pragma once

#include <functional>

#include "model/builder.h"
#include "model/options.h"

namespace headroom::model {

// Where transformers has no SDPA implementation of a model, it runs the eager one unless told to.
[[nodiscard]] BuildOptions without_sdpa(const BuildOptions& options);

// Since this version of transformers no model repeats key and value heads before flash attention;
// until then Mistral, Mixtral, Qwen2, Phi-3 and StarCoder2 did (modeling_*.py, *FlashAttention2).
inline constexpr op::Version kGroupedFlash{4, 48};

struct AttentionShape {
  int64_t batch = 0;
  int64_t sequence = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  double dropout = 0;
  bool causal = true;
  int64_t past = 0;        // keys from the cache, before those of this sequence; attend() sets it
  bool softcap = false;    // scores are bounded by a tanh (Gemma 2), in the eager implementation
  bool is_cached = false;  // key and value come from the cache already
  int64_t value_dim = 0;   // of values that are narrower than keys; 0: as wide
  bool repeats_for_flash = false;  // key and value heads are repeated before flash attention, too
  // Of the eager implementation, which models write for themselves:
  bool float32_softmax = true;    // softmax(dtype=float32), then back
  bool contiguous_output = true;  // else [batch, sequence, heads, head] is left a view
};

struct Attended {
  Var output;   // [batch, sequence, heads, head], contiguous
  Var weights;  // what the eager implementation returns beside it; the caller's `_` keeps it alive
  Var carried = {};  // what the next layer is given, see LayerInputs
};

// Key or value heads repeated for their groups of query heads: an expand, then a copy.
Var repeat_heads(GraphBuilder& g, const AttentionShape& shape, const Var& x);

// What is added to the scores, [1, heads, sequence, keys]; made when attention asks for it.
using PositionBias = std::function<Var()>;

// query [batch, heads, sequence, head]; key and value with kv_heads; mask and position_bias [1,
// heads, sequence, keys] may be empty.
Attended attend(GraphBuilder& g, const BuildOptions& options, const AttentionShape& shape,
                const Var& query, const Var& key, const Var& value, const Var& mask,
                const Var& position_bias = {});

// The eager attention of GPT-J's relatives: scores of query and key in float32. query, key and
// value are [batch, heads, sequence, head]; `mask_scores` is what the model does with the scores
// before the softmax (scale, mask).
template <typename MaskScores>
Attended attend_in_float32(GraphBuilder& g, const Var& query_in, const Var& key_in,
                           const Var& value, double dropout, const MaskScores& mask_scores) {
  const Var query = g.to(query_in, DType::f32);
  const Var key = g.to(key_in, DType::f32);
  Var weights = g.matmul(query, g.transpose(key, -1, -2));
  const Var kept = mask_scores(weights);
  weights = g.softmax(weights, -1);
  weights = g.dropout(g.to_like(weights, value), dropout);
  Var output = g.matmul(weights, value);
  return {output, weights};
}

}  // namespace headroom::model
