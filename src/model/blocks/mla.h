// Multi-head latent attention (DeepSeek-V2 and V3): keys and values from one narrow projection, and
// one rotated key for all heads, which two newer transformers cache as they are. GLM-5 adds an
// indexer that chooses the keys that a query sees.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "model/blocks/attention.h"
#include "model/blocks/decoder.h"
#include "model/blocks/linear.h"
#include "model/blocks/norm.h"
#include "model/blocks/sparse_indexer.h"

namespace headroom::model {

enum class LatentRotary : uint8_t {
  halves,       // as Llama
  interleaved,  // neighbours turn together, computed on every other column
  complex,      // DeepSeek-V2: as complex numbers
};

struct LatentAttentionShape {
  int64_t hidden = 0;
  int64_t heads = 0;
  std::optional<int64_t> query_rank;  // absent: queries are projected in one step
  int64_t kv_rank = 0;
  int64_t nope_dim = 0;  // of a query or key head: what is not rotated
  int64_t rope_dim = 0;  // and what is
  int64_t value_dim = 0;
  LatentRotary rotary = LatentRotary::interleaved;
  bool bias = false;
  double dropout = 0;
  // Queries see chosen keys: those of this layer's indexer, or, without one, of the layer before.
  bool sparse = false;
  bool shares_keys = false;  // the next layer is given them, whether it has an indexer or not
  std::optional<SparseIndexerShape> indexer;
};

class LatentAttention {
 public:
  // Declares NAME.{q_proj or q_a_proj, q_a_layernorm, q_b_proj}, kv_a_proj_with_mqa,
  // kv_a_layernorm, kv_b_proj, o_proj and, where there is one, the indexer.
  LatentAttention(GraphBuilder& g, const LatentAttentionShape& shape, const std::string& name);
  Attended operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                      const LayerInputs& inputs) const;

 private:
  // `latent`: what query heads are expanded from, where they are.
  Var queries(GraphBuilder& g, const Var& x, Var& latent) const;
  Attended attended(GraphBuilder& g, const BuildOptions& options, const Var& query, const Var& key,
                    const Var& value, const Var& mask) const;
  std::pair<Var, Var> expanded(GraphBuilder& g, const BuildOptions& options, const Var& latent,
                               const Var& rotated_key) const;

  LatentAttentionShape shape_;
  std::optional<Linear> q_, q_a_, q_b_;
  std::optional<RmsNorm> q_norm_;
  std::optional<Linear> kv_a_, kv_b_, o_;
  std::optional<RmsNorm> kv_norm_;
  std::optional<SparseIndexer> indexer_;
};

}  // namespace headroom::model
