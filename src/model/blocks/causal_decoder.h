// Llama and its dense descendants as data: one decoder, and what each family changes in it.
//
// Most families since Llama are the same frame (embedding, layers of attention and a feed-forward
// part around a residual stream, a last norm, lm_head) with other norms, biases, fused projections,
// multipliers or masks. A family reads its config into a DecoderSpec; build_causal_decoder() runs
// the forward function with the variables that transformers' own code keeps, in its order. Families
// that differ in more than that (experts, latent attention) have frames of their own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/blocks/activation.h"
#include "model/blocks/loss.h"
#include "model/builder.h"
#include "model/options.h"

namespace headroom::model {

enum class DecoderNorm : uint8_t {
  rms,           // Llama's: widened to float32, cast back, then weighted
  centered_rms,  // Gemma's: weighted by 1 + w in float32, then cast back
  layer,         // torch.nn.LayerNorm
};

// Norms of a layer besides input_layernorm.
enum class NormPlacement : uint8_t {
  before,  // before attention, before the feed-forward part
  gemma,   // and after each: post_attention, pre_feedforward, post_feedforward
  glm,     // the same under the names post_self_attn, post_attention, post_mlp
};

enum class HeadNorms : uint8_t {
  none,
  before_transpose,  // Qwen3: on [batch, sequence, heads, head]
  after_transpose,   // Gemma 3: on [batch, heads, sequence, head]
};

enum class Rotation : uint8_t {
  halves,          // the whole head, its halves against each other
  partial_halves,  // the first rotary_dims of it, the rest appended
  partial_pairs,   // the same with neighbours against each other (GLM)
};

enum class FeedForwardKind : uint8_t {
  gated,        // down(act(gate(x)) * up(x))
  fused_gated,  // gate and up in one projection, then halved
  plain,        // c_proj(act(c_fc(x)))
};

enum class LayerMask : uint8_t { full, sliding };

struct DecoderSpec {
  int64_t vocabulary = 0, hidden = 0, intermediate = 0, layers = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0, rotary_dims = 0;
  bool tied = false;

  DecoderNorm norm = DecoderNorm::rms;
  NormPlacement norms = NormPlacement::before;
  double residual_dropout = 0;
  std::optional<double> residual_multiplier;

  bool qkv_bias = false, output_bias = false, fused_qkv = false;
  HeadNorms head_norms = HeadNorms::none;
  Rotation rotation = Rotation::halves;
  double attention_dropout = 0;
  bool softcap_scores = false;
  bool repeats_for_flash = false;       // see AttentionShape
  double attention_output_dropout = 0;  // within the attention module

  FeedForwardKind feed_forward = FeedForwardKind::gated;
  bool mlp_bias = false;
  Activation activation = Activation::silu;
  double mlp_output_dropout = 0;  // within the feed-forward module

  bool embedding_scale_buffer = false;  // Gemma: a buffer that the embedding is multiplied by
  std::optional<double> embedding_multiplier;  // Granite: a number
  double embedding_dropout = 0;
  std::optional<double> logits_divisor;
  bool softcap_logits = false;
  OwnLoss own_loss;

  std::vector<LayerMask> masks{LayerMask::full};  // that the model makes, in this order
  std::vector<LayerMask> mask_of_layer;           // empty: the only one for all
  int64_t sliding_window = 0;
  bool tables_by_mask = false;  // Gemma 3: rotary frequencies of their own for each kind of layer
};

Graph build_causal_decoder(const DecoderSpec& spec, const BuildOptions& options);

}  // namespace headroom::model
