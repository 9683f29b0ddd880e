// AFM (transformers' ArceeForCausalLM): Llama with a plain feed-forward part and a squared ReLU.
#include "model/families/arcee.h"

#include "model/families/decoder_config.h"

namespace headroom::model {

Result<Graph> build_arcee(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  DecoderSpec spec = read_decoder(in, json, options, {.activation = Activation::relu2});
  spec.qkv_bias = in.flag("attention_bias", false);
  spec.output_bias = spec.qkv_bias;
  spec.feed_forward = FeedForwardKind::ungated;
  spec.mlp_bias = in.flag("mlp_bias", false);
  if (in.error()) return *in.error();
  return build_causal_decoder(spec, options);
}

}  // namespace headroom::model
