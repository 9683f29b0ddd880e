// StarCoder 2 (transformers' Starcoder2ForCausalLM): layer norms, biases, a plain feed-forward
// part, dropout at the end of each part.
#include "model/families/starcoder2.h"

#include "model/blocks/attention.h"
#include "model/families/decoder_config.h"

namespace headroom::model {

Result<Graph> build_starcoder2(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  DecoderSpec spec = read_decoder(
      in, json, options, {.tied = true, .activation = Activation::gelu_tanh, .kv_heads = 2});
  spec.norm = DecoderNorm::layer;
  spec.feed_forward = FeedForwardKind::plain;
  spec.qkv_bias = in.flag("use_bias", true);
  spec.output_bias = spec.qkv_bias;
  spec.mlp_bias = spec.qkv_bias;
  const double residual = in.dropout("residual_dropout", 0, options);
  spec.attention_output_dropout = residual;
  spec.mlp_output_dropout = residual;
  spec.embedding_dropout = in.dropout("embedding_dropout", 0, options);
  read_sliding_window(in, json, spec, {});
  spec.own_loss.until = {4, 47};
  spec.repeats_for_flash = options.transformers < kGroupedFlash;
  if (in.error()) return *in.error();
  return build_causal_decoder(spec, options);
}

}  // namespace headroom::model
