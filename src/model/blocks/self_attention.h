// Self-attention with grouped heads, as Llama's descendants vary it: biases, norms of query and
// key, rotation of part of a head, attention sinks.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "model/blocks/attention.h"
#include "model/blocks/decoder.h"
#include "model/blocks/linear.h"
#include "model/blocks/norm.h"
#include "model/blocks/rotary.h"

namespace headroom::model {

// Of queries and keys.
enum class HeadNorm : uint8_t {
  none,
  each_head,          // right after its projection (Qwen3)
  each_head_at_last,  // after all three (GLM-4)
  all_heads,          // as one vector
  layer,              // torch.nn.LayerNorm of each head, once the heads stand first (Phi)
  layers_by_head,     // the same with a norm of its own for each head (StableLM)
};

struct SelfAttentionShape {
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t rotary_dims = 0;  // up to head_dim
  HeadNorm norm = HeadNorm::none;
  bool qkv_bias = false;
  bool output_bias = false;
  bool sinks = false;           // gpt-oss; it rotates halves by tables of half the size, too
  bool projects_first = false;  // all three, before any is cut into heads
  bool splits_rotary = false;   // cuts and joins heads even where all of a head turns
  bool clips = false;  // clamps queries, keys and values in place, once all are there (OLMoE)
  std::optional<PairRotation> turns_pairs;  // neighbours against each other, in all of a head
  bool keeps_parts = false;  // what turned and what passed stay variables (Phi, StableLM)
  const char* output_name = "o_proj";
  double dropout = 0;
  bool repeats_for_flash = false;  // see AttentionShape
};

class SelfAttention {
 public:
  // Declares NAME.{sinks, q_proj, k_proj, v_proj, o_proj, q_norm, k_norm}, as far as there are any;
  // layer norms are called q_layernorm and k_layernorm.
  SelfAttention(GraphBuilder& g, const SelfAttentionShape& shape, const std::string& name);
  Attended operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                      const LayerInputs& inputs) const;

 private:
  std::array<Var, 3> projected(GraphBuilder& g, const BuildOptions& options, const Var& x) const;
  Var layer_normed(GraphBuilder& g, const std::vector<LayerNorm>& norms, const Var& x) const;
  Attended attend_with_sinks(GraphBuilder& g, const AttentionShape& shape, const Var& query,
                             const Var& key, const Var& value, const Var& mask) const;

  SelfAttentionShape shape_;
  Var sinks_;
  Linear q_, k_, v_, o_;
  std::optional<RmsNorm> q_norm_, k_norm_, no_norm_;
  std::vector<LayerNorm> q_layer_norms_, k_layer_norms_;  // none, one, or one a head
};

}  // namespace headroom::model
