// Command R, Aya and Command R7B (transformers' CohereForCausalLM, Cohere2ForCausalLM): attention
// and feed-forward part side by side under one norm; the second with windows in three of four
// layers, and rotation in those alone.
#include "model/families/cohere.h"

#include "model/families/decoder_config.h"

namespace headroom::model {

namespace {

DecoderSpec read_cohere(ConfigReader& in, const text::JsonView& json, const BuildOptions& options) {
  DecoderSpec spec = read_decoder(in, json, options, {.tied = true});
  spec.qkv_bias = in.flag("attention_bias", false);
  spec.output_bias = spec.qkv_bias;
  spec.norm = DecoderNorm::written_layer;
  spec.norms = NormPlacement::shared;
  spec.tables = RotaryTables::repeated;
  spec.rotation = Rotation::pairs;
  spec.pair_rotation = {false, PairRotation::Widening::of_operands};
  spec.logits_multiplier = in.number("logit_scale", 0.0625, -1e9, 1e9);
  return spec;
}

}  // namespace

Result<Graph> build_cohere(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  DecoderSpec spec = read_cohere(in, json, options);
  spec.head_cut = HeadCut::turned_last;
  if (in.flag("use_qk_norm", false)) spec.head_norms = HeadNorms::own_for_each;
  if (in.error()) return *in.error();
  return build_causal_decoder(spec, options);
}

Result<Graph> build_cohere2(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  DecoderSpec spec = read_cohere(in, json, options);
  spec.masks = {LayerMask::full, LayerMask::sliding};
  spec.sliding_window = in.size({"sliding_window"}, 4096, kWindowMax);
  const int64_t period = in.size({"sliding_window_pattern"}, 4, kLayersMax);
  read_layer_masks(in, json, spec, [&](int64_t layer) { return (layer + 1) % period != 0; });
  for (const LayerMask mask : spec.mask_of_layer) {
    spec.rotates_layer.push_back(mask == LayerMask::sliding);
  }
  if (in.error()) return *in.error();
  return build_causal_decoder(spec, options);
}

}  // namespace headroom::model
