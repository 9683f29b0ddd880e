// The linear attention of MiniMax 1 ("lightning"): no softmax, a decay a head, blocks of tokens.
//
// Within a block it is a product of queries, keys and values under a table of decays; between
// blocks one matrix a head, [head, head], is carried. Queries, keys and values come from one
// projection, and a gate of its own multiplies the normalized output.
//
// Its cache is that matrix, whatever the length. Tables of decays are buffers of every layer.
//
// Source: MiniMaxLightningAttention in models/minimax/modeling_minimax.py (transformers 5.23). Cost
// of building: some 20 operators a block of tokens.
#pragma once

#include <string>
#include <vector>

#include "model/blocks/activation.h"
#include "model/blocks/attention.h"
#include "model/blocks/linear.h"
#include "model/blocks/norm.h"

namespace headroom::model {

struct LightningShape {
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t block = 0;  // tokens
  Activation activation = Activation::silu;
};

class LightningAttention {
 public:
  // Declares NAME.{norm, qkv_proj, out_proj, output_gate} and the buffers slope_rate, query_decay,
  // key_decay and diagonal_decay.
  LightningAttention(GraphBuilder& g, const LightningShape& shape, const std::string& name);
  // Attended::weights is the state after the last token, which the caller's `_` keeps.
  Attended operator()(GraphBuilder& g, const BuildOptions& options, const Var& x) const;

 private:
  // The Python function's variables, which the loops give new values.
  struct Variables {
    Var query, key, value;
    Var state;
    std::vector<Var> outputs;
    Var decay, within, from_tokens, from_state, output, update;
  };
  void pass_block(GraphBuilder& g, Variables& v, int64_t start, int64_t end) const;
  void pass_token(GraphBuilder& g, Variables& v, const Var& ratio, int64_t token) const;

  LightningShape s_;
  RmsNorm norm_;
  Linear qkv_, out_, gate_;
  Var slope_, query_decay_, key_decay_, diagonal_decay_;
};

}  // namespace headroom::model
