// The full attention of Qwen3-Next and Qwen3.5: grouped heads, norms of query and key, part of a
// head rotated, and a gate, projected beside the query, that the output is multiplied by.
#pragma once

#include <string>

#include "model/blocks/attention.h"
#include "model/blocks/decoder.h"
#include "model/blocks/decoder_norm.h"
#include "model/blocks/linear.h"

namespace headroom::model {

struct GatedAttentionShape {
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t rotary_dims = 0;
  bool bias = false;
  double dropout = 0;
};

class GatedAttention {
 public:
  // Declares NAME.{q_proj, k_proj, v_proj, o_proj, q_norm, k_norm}; q_proj is as wide as two.
  GatedAttention(GraphBuilder& g, const GatedAttentionShape& shape, const std::string& name);
  Attended operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                      const LayerInputs& inputs) const;

 private:
  GatedAttentionShape s_;
  Linear q_, k_, v_, o_;
  CenteredRmsNorm q_norm_, k_norm_;
};

}  // namespace headroom::model
