// GLM-4 in both of transformers' classes (GlmForCausalLM; Glm4ForCausalLM, which also normalizes
// what attention and the feed-forward part give).
#include "model/families/glm.h"

#include "model/families/decoder_config.h"

namespace headroom::model {

namespace {

DecoderSpec read_glm(ConfigReader& in, const text::JsonView& json, const BuildOptions& options) {
  DecoderSpec spec =
      read_decoder(in, json, options, {.partial_rotary = 0.5, .kv_heads = 2, .head_dim = 128});
  spec.qkv_bias = in.flag("attention_bias", true);
  spec.rotation = Rotation::partial_pairs;
  spec.feed_forward = FeedForwardKind::fused_gated;
  return spec;
}

}  // namespace

Result<Graph> build_glm(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  const DecoderSpec spec = read_glm(in, json, options);
  if (in.error()) return *in.error();
  return build_causal_decoder(spec, options);
}

Result<Graph> build_glm4(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  DecoderSpec spec = read_glm(in, json, options);
  spec.norms = NormPlacement::glm;
  if (in.error()) return *in.error();
  return build_causal_decoder(spec, options);
}

}  // namespace headroom::model
