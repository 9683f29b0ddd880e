// The keys that the configs of Llama's descendants share.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "model/blocks/causal_decoder.h"
#include "model/blocks/self_attention.h"
#include "model/families/config.h"

namespace headroom::model {

// A window is compared with a sequence and never multiplied.
inline constexpr int64_t kWindowMax = int64_t{1} << 40;

// What transformers takes where a config leaves a key out. The sizes have defaults there too, but a
// config without them describes no model: they are required here, but for those of parts of a
// config that checkpoints leave out.
struct DecoderDefaults {
  std::optional<int64_t> vocabulary = {};  // none: it must be there
  std::optional<int64_t> heads = {};
  bool tied = false;
  double partial_rotary = 1;
  const char* partial_rotary_key = "partial_rotary_factor";
  Activation activation = Activation::silu;
  const char* activation_key = "hidden_act";
  std::optional<int64_t> kv_heads = {};      // none: as many as there are heads
  std::optional<int64_t> head_dim = {};      // none: hidden / heads
  std::optional<int64_t> intermediate = {};  // none: it must be there
};

// The keys of a DecoderSpec's attention, for families that are made of SelfAttention.
[[nodiscard]] SelfAttentionShape attention_shape(const DecoderSpec& spec);

// Sizes, tying, activation, dropout of attention, rotary dimensions.
DecoderSpec read_decoder(ConfigReader& in, const text::JsonView& json, const BuildOptions& options,
                         const DecoderDefaults& defaults = {});

// "layer_types", by which a layer is full or `other`; empty where the key is missing. Errors:
// another word, or not one a layer.
[[nodiscard]] Result<std::vector<LayerMask>> named_masks(const text::JsonView& json, int64_t layers,
                                                         LayerMask other = LayerMask::sliding);

// "no_rope_layers" has a 1 for a layer that is rotated; else every "no_rope_layer_interval"-th is
// not. Errors: another number, or fewer than there are layers.
[[nodiscard]] Result<std::vector<bool>> rotated_layers(const text::JsonView& json, int64_t layers);

// Fills mask_of_layer from "layer_types", or by asking `slides` about each layer where that is not
// there. `masks` and the window are the family's.
void read_layer_masks(ConfigReader& in, const text::JsonView& json, DecoderSpec& spec,
                      const std::function<bool(int64_t layer)>& slides);

// The layers' windows, of a family whose model makes their mask only where one has a window.
void add_mask_of_windows(DecoderSpec& spec);

// "sliding_window" for all layers: they see that far where it is a number, everything where it is
// null; `otherwise` stands for a config without the key.
void read_sliding_window(ConfigReader& in, const text::JsonView& json, DecoderSpec& spec,
                         std::optional<int64_t> otherwise);

}  // namespace headroom::model
