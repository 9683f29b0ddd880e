// The gated delta rule of Qwen3-Next and Qwen3.5, as transformers runs it in torch operators where
// the package flash-linear-attention is not installed.
//
// A state a head, [key size, value size], decays and is corrected at every token. Training and
// prefill go by chunks of 64 tokens: what happens within a chunk is matrices for all chunks at
// once, and a loop carries the state from chunk to chunk. Decoding goes token by token. Everything
// is float32 and stays for backward, which is why long sequences cost so much on this path: the
// matrices between the tokens of a chunk alone are several times the queries and keys.
//
// Source: torch_chunk_gated_delta_rule and torch_recurrent_gated_delta_rule in
// models/qwen3_next/modeling_qwen3_next.py (transformers 5.23). Cost of building: some 90
// operators, and 20 a chunk.
#pragma once

#include <cstdint>

#include "model/builder.h"
#include "model/options.h"

namespace headroom::model {

// Tokens that are treated at once.
inline constexpr int64_t kDeltaRuleChunk = 64;

struct DeltaRuleShape {
  int64_t key_heads = 0;
  int64_t value_heads = 0;  // a multiple of the key heads
  int64_t key_dim = 0;      // of a head
  int64_t value_dim = 0;
};

struct DeltaRuleInputs {
  const Var& query;  // [batch, sequence, key heads, key size], as the key
  const Var& key;
  const Var& value;  // [batch, sequence, value heads, value size]
  const Var& decay;  // [batch, sequence, value heads], in log space
  const Var& beta;   // the same sizes
  const Var& state;  // [batch, value heads, key size, value size], or empty at the beginning
};

struct DeltaRuleOutputs {
  Var output;  // [batch, sequence, value heads, value size], in the query's type
  Var state;   // after the last token
};

// `keeps_state`: the state after the last token is wanted, for a cache.
DeltaRuleOutputs chunked_delta_rule(GraphBuilder& g, const BuildOptions& options,
                                    const DeltaRuleShape& shape, const DeltaRuleInputs& inputs,
                                    bool keeps_state);
DeltaRuleOutputs recurrent_delta_rule(GraphBuilder& g, const BuildOptions& options,
                                      const DeltaRuleShape& shape, const DeltaRuleInputs& inputs);

}  // namespace headroom::model
