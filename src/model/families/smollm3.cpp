// SmolLM3 (transformers' SmolLM3ForCausalLM): Llama with every fourth layer left unrotated.
#include "model/families/smollm3.h"

#include <vector>

#include "model/families/decoder_config.h"

namespace headroom::model {

Result<Graph> build_smollm3(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  DecoderSpec spec = read_decoder(in, json, options, {.tied = true, .kv_heads = 4});
  spec.qkv_bias = in.flag("attention_bias", false);
  spec.output_bias = spec.qkv_bias;
  spec.mlp_bias = in.flag("mlp_bias", false);
  spec.rotates_layer = in.take(rotated_layers(json, spec.layers),
                               std::vector<bool>(static_cast<size_t>(spec.layers)));
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
