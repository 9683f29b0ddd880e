// Llama 1 to 3.x (transformers' LlamaForCausalLM). The kinds of rope scaling change numbers only.
#include "model/families/llama.h"

#include "model/families/decoder_config.h"

namespace headroom::model {

Result<Graph> build_llama(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  DecoderSpec spec = read_decoder(in, json, options);
  spec.qkv_bias = in.flag("attention_bias", false);
  spec.output_bias = spec.qkv_bias;
  spec.mlp_bias = in.flag("mlp_bias", false);
  if (in.error()) return *in.error();
  return build_causal_decoder(spec, options);
}

}  // namespace headroom::model
