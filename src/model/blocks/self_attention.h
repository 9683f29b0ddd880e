// Self-attention with grouped heads, as Llama's descendants vary it: biases, norms of query and
// key, rotation of part of a head, attention sinks.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "model/blocks/attention.h"
#include "model/blocks/decoder.h"
#include "model/blocks/linear.h"
#include "model/blocks/norm.h"

namespace headroom::model {

// Of queries and keys: of each head, right after its projection (Qwen3) or after all three (GLM-4);
// or of all heads as one vector.
enum class HeadNorm : uint8_t { none, each_head, each_head_at_last, all_heads };

struct SelfAttentionShape {
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t rotary_dims = 0;  // up to head_dim
  HeadNorm norm = HeadNorm::none;
  bool qkv_bias = false;
  bool output_bias = false;
  bool sinks = false;          // gpt-oss; it rotates halves by tables of half the size, too
  bool splits_rotary = false;  // cuts and joins heads even where all of a head turns
  double dropout = 0;
  bool repeats_for_flash = false;  // see AttentionShape
};

class SelfAttention {
 public:
  // Declares NAME.{sinks, q_proj, k_proj, v_proj, o_proj, q_norm, k_norm}, as far as there are any.
  SelfAttention(GraphBuilder& g, const SelfAttentionShape& shape, const std::string& name);
  Attended operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                      const LayerInputs& inputs) const;

 private:
  std::array<Var, 3> projected(GraphBuilder& g, const BuildOptions& options, const Var& x) const;
  Attended attend_with_sinks(GraphBuilder& g, const AttentionShape& shape, const Var& query,
                             const Var& key, const Var& value, const Var& mask) const;

  SelfAttentionShape shape_;
  Var sinks_;
  Linear q_, k_, v_, o_;
  std::optional<RmsNorm> q_norm_, k_norm_, no_norm_;
};

}  // namespace headroom::model
