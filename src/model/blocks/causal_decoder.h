// Llama and its dense descendants as data: one layer, and what each family changes in it.
//
// Most families since Llama are layers of attention and a feed-forward part around a residual
// stream with other norms, biases, fused projections, multipliers or masks. A family reads its
// config into a DecoderSpec; the frame around the layers is decoder_frame.h's. Families that differ
// in more than that (experts, latent attention) say what their layers are made of (decoder.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/blocks/activation.h"
#include "model/blocks/decoder_frame.h"
#include "model/blocks/rotary.h"
#include "model/builder.h"
#include "model/options.h"

namespace headroom::model {

// Norms of a layer besides input_layernorm.
enum class NormPlacement : uint8_t {
  before,  // before attention, before the feed-forward part
  gemma,   // and after each: post_attention, pre_feedforward, post_feedforward
  glm,     // the same under the names post_self_attn, post_attention, post_mlp
  after,   // after each, none before: post_attention, post_feedforward (OLMo 2, EXAONE 4)
  shared,  // one before both parts, which stand side by side (Cohere)
};

enum class HeadNorms : uint8_t {
  none,
  before_transpose,  // Qwen3: on [batch, sequence, heads, head]
  after_transpose,   // Gemma 3: on [batch, heads, sequence, head]
  after_rotation,    // Hunyuan: the same, once they are rotated; query_layernorm, key_layernorm
  all_heads,         // OLMo 2: on [batch, sequence, heads * head]
  own_for_each,      // Cohere: before the transpose, weights [heads, head]
};

// When the products of query, key and value are viewed as heads, and the heads put before the
// sequence: autograd goes back through them in this order.
enum class HeadCut : uint8_t {
  each,         // each product's right after it
  turned_last,  // viewed right after, all turned after the third (Cohere)
  last,         // both after the third (OLMo)
};

enum class Rotation : uint8_t {
  halves,          // the whole head, its halves against each other
  partial_halves,  // the first rotary_dims of it, the rest appended
  partial_pairs,   // the same with neighbours against each other (GLM)
  pairs,           // the whole head, neighbours against each other
};

enum class FeedForwardKind : uint8_t {
  gated,        // down(act(gate(x)) * up(x))
  fused_gated,  // gate and up in one projection, then halved
  plain,        // c_proj(act(c_fc(x)))
  ungated,      // down(act(up(x)))
};

struct DecoderSpec : DecoderFrame {
  int64_t intermediate = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;

  NormPlacement norms = NormPlacement::before;
  double residual_dropout = 0;
  std::optional<double> residual_multiplier;

  bool qkv_bias = false, output_bias = false, fused_qkv = false;
  HeadNorms head_norms = HeadNorms::none;
  Rotation rotation = Rotation::halves;
  PairRotation pair_rotation;       // of Rotation::pairs
  std::vector<bool> rotates_layer;  // empty: all are rotated
  bool scales_queries = false;      // by their position (Ministral 3)
  HeadCut head_cut = HeadCut::each;
  bool clips_products = false;  // in place, with HeadCut::last
  double attention_dropout = 0;
  bool softcap_scores = false;
  bool repeats_for_flash = false;       // see AttentionShape
  double attention_output_dropout = 0;  // within the attention module

  FeedForwardKind feed_forward = FeedForwardKind::gated;
  bool mlp_bias = false;
  Activation activation = Activation::silu;
  double mlp_output_dropout = 0;  // within the feed-forward module, but for fused_gated
};

Graph build_causal_decoder(const DecoderSpec& spec, const BuildOptions& options);

}  // namespace headroom::model
