// Seed-OSS (transformers' SeedOssForCausalLM): Llama with biases on query, key and value and with
// dropouts behind attention and feed-forward part.
#include "model/families/seed_oss.h"

#include "model/families/decoder_config.h"

namespace headroom::model {

Result<Graph> build_seed_oss(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  DecoderSpec spec = read_decoder(in, json, options, {.kv_heads = 8, .head_dim = 128});
  spec.qkv_bias = in.flag("attention_bias", true);
  spec.output_bias = in.flag("attention_out_bias", false);
  spec.mlp_bias = in.flag("mlp_bias", false);
  spec.attention_dropout = in.dropout("attention_dropout", 0.1, options);
  spec.attention_output_dropout = in.dropout("residual_dropout", 0.1, options);
  spec.mlp_output_dropout = spec.attention_output_dropout;
  if (in.error()) return *in.error();
  return build_causal_decoder(spec, options);
}

}  // namespace headroom::model
