// OLMo 1, 2 and 3 (transformers' OlmoForCausalLM, Olmo2ForCausalLM, Olmo3ForCausalLM): Llama with
// rotary tables in float32; the first under norms without parameters, the others with norms after
// each part and of all queries and keys, the third with windows in three of four layers.
#include "model/families/olmo.h"

#include "model/families/decoder_config.h"

namespace headroom::model {

namespace {

DecoderSpec read_olmo(ConfigReader& in, const text::JsonView& json, const BuildOptions& options) {
  DecoderSpec spec = read_decoder(in, json, options);
  spec.qkv_bias = in.flag("attention_bias", false);
  spec.output_bias = spec.qkv_bias;
  spec.tables = RotaryTables::wide;
  spec.head_cut = HeadCut::last;
  return spec;
}

DecoderSpec read_olmo2(ConfigReader& in, const text::JsonView& json, const BuildOptions& options) {
  DecoderSpec spec = read_olmo(in, json, options);
  spec.norm = DecoderNorm::wide_rms;
  spec.norms = NormPlacement::after;
  spec.head_norms = HeadNorms::all_heads;
  return spec;
}

}  // namespace

Result<Graph> build_olmo(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  DecoderSpec spec = read_olmo(in, json, options);
  spec.norm = DecoderNorm::bare_layer;
  spec.clips_products = json.has("clip_qkv");
  if (in.error()) return *in.error();
  return build_causal_decoder(spec, options);
}

Result<Graph> build_olmo2(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  const DecoderSpec spec = read_olmo2(in, json, options);
  if (in.error()) return *in.error();
  return build_causal_decoder(spec, options);
}

Result<Graph> build_olmo3(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  DecoderSpec spec = read_olmo2(in, json, options);
  spec.masks = {LayerMask::full, LayerMask::sliding};
  spec.sliding_window = in.size({"sliding_window"}, 4096, kWindowMax);
  read_layer_masks(in, json, spec, [](int64_t layer) { return (layer + 1) % 4 != 0; });
  spec.tables_by_mask = true;
  if (in.error()) return *in.error();
  return build_causal_decoder(spec, options);
}

}  // namespace headroom::model
