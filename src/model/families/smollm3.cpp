// SmolLM3 (transformers' SmolLM3ForCausalLM): Llama with every fourth layer left unrotated.
#include "model/families/smollm3.h"

#include <vector>

#include "model/families/decoder_config.h"

namespace headroom::model {

namespace {

// "no_rope_layers" has a 1 for a layer that is rotated.
std::vector<bool> rotated_layers(ConfigReader& in, const text::JsonView& json, int64_t layers) {
  const auto flags = json.optional_array("no_rope_layers", static_cast<size_t>(kLayersMax));
  in.require(flags.has_value(), "no_rope_layers", "expected an array with an entry a layer");
  const int64_t interval = in.size({"no_rope_layer_interval"}, 4, kLayersMax);
  std::vector<bool> rotated;
  if (!flags || !*flags) {
    for (int64_t i = 0; i < layers; ++i) rotated.push_back((i + 1) % interval != 0);
    return rotated;
  }
  for (const text::JsonView& flag : **flags) {
    const auto value = flag.to_int(0, 1);
    in.require(value.has_value(), "no_rope_layers", "expected 0 or 1");
    rotated.push_back(value && *value != 0);
  }
  in.require(static_cast<int64_t>(rotated.size()) >= layers, "no_rope_layers",
             "expected an entry a layer");
  rotated.resize(static_cast<size_t>(layers));
  return rotated;
}

}  // namespace

Result<Graph> build_smollm3(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  DecoderSpec spec = read_decoder(in, json, options, {.tied = true, .kv_heads = 4});
  spec.qkv_bias = in.flag("attention_bias", false);
  spec.output_bias = spec.qkv_bias;
  spec.mlp_bias = in.flag("mlp_bias", false);
  spec.rotates_layer = rotated_layers(in, json, spec.layers);
  const bool has_window = in.flag("use_sliding_window", false) && json.has("sliding_window");
  spec.sliding_window = in.size({"sliding_window"}, kWindowMax, kWindowMax);
  read_layer_masks(in, json, spec, [&](int64_t layer) {
    return has_window && !spec.rotates_layer[static_cast<size_t>(layer)];
  });
  add_mask_of_windows(spec);
  if (in.error()) return *in.error();
  return build_causal_decoder(spec, options);
}

}  // namespace headroom::model
