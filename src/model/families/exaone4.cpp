// EXAONE 4 (transformers' Exaone4ForCausalLM): norms after each part and of each head; where there
// is a window, the layers without it are left unrotated.
#include "model/families/exaone4.h"

#include <algorithm>

#include "model/families/decoder_config.h"

namespace headroom::model {

Result<Graph> build_exaone4(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  DecoderSpec spec = read_decoder(in, json, options, {.kv_heads = 32});
  spec.norms = NormPlacement::after;
  spec.head_norms = HeadNorms::after_transpose;
  const bool has_window =
      json.json().find("sliding_window") == nullptr || json.has("sliding_window");
  spec.sliding_window = in.size({"sliding_window"}, 4096, kWindowMax);
  const int64_t period = has_window ? in.size({"sliding_window_pattern"}, 4, kLayersMax) : 1;
  read_layer_masks(in, json, spec, [&](int64_t layer) { return (layer + 1) % period != 0; });
  for (const LayerMask mask : spec.mask_of_layer) {
    spec.rotates_layer.push_back(!has_window || mask == LayerMask::sliding);
  }
  if (std::ranges::find(spec.mask_of_layer, LayerMask::sliding) != spec.mask_of_layer.end()) {
    spec.masks.push_back(LayerMask::sliding);
  }
  if (in.error()) return *in.error();
  return build_causal_decoder(spec, options);
}

}  // namespace headroom::model
