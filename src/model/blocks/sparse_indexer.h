// The indexer of DeepSeek sparse attention (DeepSeek-V3.2, GLM-5): light projections of their own
// score every key for every query, and a query then sees the best keys alone.
//
// It runs without gradients, so its weights are never trained and no optimizer keeps a state for
// them. On the eager and SDPA paths the choice becomes a mask, and scoring in transformers expands
// the keys to every query: [batch, queries, index head, keys] in float32 is the largest temporary
// of the layer.
//
// Source: GlmMoeDsaIndexer in models/glm_moe_dsa/modeling_glm_moe_dsa.py and DeepseekV32Indexer
// (transformers 5.23).
#pragma once

#include <string>

#include "model/blocks/decoder.h"
#include "model/blocks/linear.h"
#include "model/blocks/norm.h"

namespace headroom::model {

struct SparseIndexerShape {
  int64_t hidden = 0;
  int64_t query_rank = 0;  // of the latent query that it reads
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t rope_dim = 0;         // of a head
  int64_t top_k = 0;            // keys that a query sees
  bool rotates_halves = false;  // DeepSeek-V3.2; else neighbours turn together
};

class SparseIndexer {
 public:
  // Declares NAME.{wq_b, wk, k_norm, weights_proj}.
  SparseIndexer(GraphBuilder& g, const SparseIndexerShape& shape, const std::string& name);
  // The indices of the chosen keys, [batch, sequence, top_k] in int32. mask [batch, 1, sequence,
  // keys]; `cache_name`: of the layer, where there is a cache.
  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                 const Var& latent_query, const LayerInputs& inputs,
                 const std::string& cache_name) const;

 private:
  static Var scores(GraphBuilder& g, const Var& query, const Var& key);

  SparseIndexerShape s_;
  std::string name_;
  Linear query_, key_;
  LayerNorm key_norm_;
  Linear weights_;
};

// Booleans, [batch, 1, sequence, keys]: true where a key was not chosen.
Var mask_of_others(GraphBuilder& g, const BuildOptions& options, const Var& chosen);

}  // namespace headroom::model
