// The core of attention under Transformer Engine: from queries, keys and values to what is attended
// to, by each of its backends.
//
// Source: transformer_engine/pytorch/attention/dot_product_attention/{dot_product_attention,
// backends,utils}.py, versions 2.9 and of August 2026.
#pragma once

#include <string>
#include <vector>

#include "model/megatron_parts.h"

namespace headroom::model {

// On one rank: queries [queries, b, heads, key_size], keys [keys, b, kv_heads, key_size] and values
// [keys, b, kv_heads, value_size].
struct CoreAttention {
  int64_t queries = 0;
  int64_t keys = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t key_size = 0;
  int64_t value_size = 0;
  bool lie_apart = false;  // queries, keys and values are no views of one block
  bool is_padded = false;  // a mask of padding, in place of the causal one

  // parts: queries, keys, values. Gives [queries, b, heads * value_size].
  Var operator()(GraphBuilder& g, const MegatronStage& stage, std::vector<Var> parts,
                 const MegatronContext& context, const std::string& module) const;

 private:
  Var unfused(GraphBuilder& g, const MegatronStage& stage, const std::vector<Var>& parts,
              const MegatronContext& context) const;
  // Of scores [rows, queries, keys], by which values are weighed.
  Var softmax(GraphBuilder& g, const MegatronStage& stage, Var scores,
              const MegatronContext& context) const;
  Var flash(GraphBuilder& g, const MegatronStage& stage, const std::vector<Var>& parts) const;
  Var fused(GraphBuilder& g, const std::vector<Var>& parts) const;
  Var fused_ring(GraphBuilder& g, const MegatronStage& stage, const std::vector<Var>& parts) const;
  Var without_padding(GraphBuilder& g, Var weights, int64_t batch) const;
  // Each head of keys or values as often as queries share it.
  Var repeated(GraphBuilder& g, const Var& x, int64_t batch, int64_t size) const;
};

}  // namespace headroom::model
