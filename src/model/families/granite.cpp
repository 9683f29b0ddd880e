// Granite 3 and PowerLM (transformers' GraniteForCausalLM): Llama with multipliers.
#include "model/families/granite.h"

#include "model/families/decoder_config.h"

namespace headroom::model {

Result<Graph> build_granite(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  DecoderSpec spec = read_decoder(in, json, options);
  spec.qkv_bias = in.flag("attention_bias", false);
  spec.output_bias = spec.qkv_bias;
  spec.mlp_bias = in.flag("mlp_bias", false);
  spec.embedding_multiplier = in.number("embedding_multiplier", 1, -1e9, 1e9);
  spec.residual_multiplier = in.number("residual_multiplier", 1, -1e9, 1e9);
  spec.logits_divisor = in.number("logits_scaling", 1, -1e9, 1e9);
  spec.own_loss.until = {4, 48};
  if (in.error()) return *in.error();
  return build_causal_decoder(spec, options);
}

}  // namespace headroom::model
