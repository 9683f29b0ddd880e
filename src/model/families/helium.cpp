// Helium (transformers' HeliumForCausalLM): Llama whose heads turn by neighbours, under norms that
// widen their weights.
#include "model/families/helium.h"

#include "model/families/decoder_config.h"

namespace headroom::model {

Result<Graph> build_helium(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  DecoderSpec spec = read_decoder(in, json, options, {.kv_heads = 20, .head_dim = 128});
  in.require(spec.heads * spec.head_dim == spec.hidden, "head_dim",
             "times num_attention_heads is not hidden_size");
  spec.qkv_bias = in.flag("attention_bias", false);
  spec.mlp_bias = in.flag("mlp_bias", false);
  spec.norm = DecoderNorm::widened_rms;
  spec.rotation = Rotation::pairs;
  if (in.error()) return *in.error();
  return build_causal_decoder(spec, options);
}

}  // namespace headroom::model
