// EXAONE 4 (transformers' Exaone4ForCausalLM): norms after each part and of each head; where there
// is a window, the layers without it are left unrotated.
#include "model/families/exaone4.h"

#include <string>

#include "model/families/decoder_config.h"

namespace headroom::model {

namespace {

// "LLLG", or as many layers as it has letters: of each so many layers the last attends to
// everything.
int64_t period_of_windows(ConfigReader& in, const text::JsonView& json) {
  const auto letters = json.optional_string("sliding_window_pattern");
  if (!letters || !*letters) return in.size({"sliding_window_pattern"}, 4, kLayersMax);
  const std::string& pattern = **letters;
  const bool is_one = !pattern.empty() && pattern.find('G') + 1 == pattern.size() &&
                      pattern.find_first_not_of("LG") == std::string::npos;
  in.require(is_one, "sliding_window_pattern", "expected a number, or a word like LLLG");
  return is_one ? static_cast<int64_t>(pattern.size()) : 1;
}

}  // namespace

Result<Graph> build_exaone4(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  DecoderSpec spec = read_decoder(in, json, options, {.kv_heads = 32});
  spec.norms = NormPlacement::after;
  spec.head_norms = HeadNorms::after_transpose;
  const bool has_window =
      json.json().find("sliding_window") == nullptr || json.has("sliding_window");
  spec.sliding_window = in.size({"sliding_window"}, 4096, kWindowMax);
  const int64_t period = has_window ? period_of_windows(in, json) : 1;
  read_layer_masks(in, json, spec, [&](int64_t layer) { return (layer + 1) % period != 0; });
  for (const LayerMask mask : spec.mask_of_layer) {
    spec.rotates_layer.push_back(!has_window || mask == LayerMask::sliding);
  }
  add_mask_of_windows(spec);
  if (in.error()) return *in.error();
  return build_causal_decoder(spec, options);
}

}  // namespace headroom::model
