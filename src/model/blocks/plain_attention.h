// Attention without rotation or grouped heads, as BERT, ViT and T5 have it: three projections, and
// one more at the end where the module has it.
#pragma once

#include <optional>
#include <string>

#include "model/blocks/attention.h"
#include "model/blocks/linear.h"
#include "model/builder.h"
#include "model/options.h"

namespace headroom::model {

struct PlainAttentionNames {
  const char* query = "q_proj";
  const char* key = "k_proj";
  const char* value = "v_proj";
  const char* output = nullptr;  // no projection at the end
};

struct PlainAttentionShape {
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  bool qkv_bias = true;
  bool output_bias = true;
  bool causal = false;
  bool float32_softmax = false;
  double dropout = 0;
};

class PlainAttention {
 public:
  PlainAttention(GraphBuilder& g, const PlainAttentionShape& shape,
                 const PlainAttentionNames& names, const std::string& name);
  // x [batch, sequence, hidden]; keys and values are made of `context` [batch, tokens, hidden],
  // which is x itself in self-attention. `bias` may be empty; else it is asked for once the
  // projections are made, and added to the scores.
  Attended operator()(GraphBuilder& g, const BuildOptions& options, const Var& x, int64_t sequence,
                      const Var& context, int64_t context_length, const Var& mask,
                      const PositionBias& bias = {}) const;

 private:
  PlainAttentionShape shape_;
  Linear query_, key_, value_;
  std::optional<Linear> output_;
};

}  // namespace headroom::model
