#include "model/families/decoder_config.h"

#include <algorithm>
#include <string>

namespace headroom::model {

namespace {

// transformers 5 keeps the factor with the other numbers of the rotation; before, it stood alone.
double partial_rotary_factor(ConfigReader& in, const text::JsonView& json,
                             const DecoderDefaults& defaults) {
  const double factor = in.number(defaults.partial_rotary_key, defaults.partial_rotary, 0, 1);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const auto rope = json.optional_object(key);
    if (!rope || !*rope) continue;
    const auto inner = (*rope)->optional_double("partial_rotary_factor", 0, 1);
    in.require(inner.has_value(), key, "partial_rotary_factor is not a number from 0 to 1");
    if (inner && *inner) return **inner;
  }
  return factor;
}

}  // namespace

SelfAttentionShape attention_shape(const DecoderSpec& spec) {
  SelfAttentionShape shape;
  shape.hidden = spec.hidden;
  shape.heads = spec.heads;
  shape.kv_heads = spec.kv_heads;
  shape.head_dim = spec.head_dim;
  shape.rotary_dims = spec.rotary_dims;
  shape.qkv_bias = spec.qkv_bias;
  shape.output_bias = spec.output_bias;
  shape.dropout = spec.attention_dropout;
  return shape;
}

DecoderSpec read_decoder(ConfigReader& in, const text::JsonView& json, const BuildOptions& options,
                         const DecoderDefaults& defaults) {
  DecoderSpec spec;
  spec.vocabulary = options.vocabulary.value_or(in.size({"vocab_size"}, defaults.vocabulary));
  spec.hidden = in.size({"hidden_size"});
  spec.intermediate = in.size({"intermediate_size"}, defaults.intermediate);
  spec.layers = in.size({"num_hidden_layers"}, {}, kLayersMax);
  spec.heads = in.size({"num_attention_heads"}, defaults.heads, kHeadsMax);
  const int64_t kv_heads =
      in.is_null("num_key_value_heads") ? spec.heads : defaults.kv_heads.value_or(spec.heads);
  const int64_t head_dim = spec.hidden / spec.heads;
  spec.kv_heads = in.size({"num_key_value_heads"}, kv_heads, kHeadsMax);
  spec.head_dim = in.size({"head_dim"},
                          in.is_null("head_dim") ? head_dim : defaults.head_dim.value_or(head_dim));
  in.require(spec.heads % spec.kv_heads == 0, "num_key_value_heads",
             "does not divide num_attention_heads");
  in.require(spec.head_dim > 0, "num_attention_heads", "more than hidden_size");
  // So that parameters of all layers can be counted.
  in.require(spec.heads * spec.head_dim <= kSizeMax, "head_dim",
             "more than 2^24 columns in all heads");
  const double factor = partial_rotary_factor(in, json, defaults);
  spec.rotary_dims = static_cast<int64_t>(static_cast<double>(spec.head_dim) * factor);
  in.require(spec.rotary_dims > 0 && spec.rotary_dims % 2 == 0, "head_dim",
             "rotates an odd number of dimensions, or none");
  spec.tied = in.flag("tie_word_embeddings", defaults.tied);
  spec.activation = in.activation(defaults.activation_key, defaults.activation);
  spec.attention_dropout = in.dropout("attention_dropout", 0, options);
  return spec;
}

Result<std::vector<LayerMask>> named_masks(const text::JsonView& json, int64_t layers,
                                           LayerMask other) {
  HEADROOM_ASSIGN(const auto types, json.optional_array("layer_types", kLayersMax));
  std::vector<LayerMask> masks;
  if (!types) return masks;
  const std::string other_name =
      other == LayerMask::chunked ? "chunked_attention" : "sliding_attention";
  for (const text::JsonView& item : *types) {
    HEADROOM_ASSIGN(const std::string type, item.to_string());
    if (type != "full_attention" && type != other_name) {
      return item.error("expected full_attention or " + other_name);
    }
    masks.push_back(type == "full_attention" ? LayerMask::full : other);
  }
  if (static_cast<int64_t>(masks.size()) != layers) {
    return json.error_at("layer_types", "expected an entry a layer");
  }
  return masks;
}

Result<std::vector<bool>> rotated_layers(const text::JsonView& json, int64_t layers) {
  HEADROOM_ASSIGN(const auto flags, json.optional_array("no_rope_layers", kLayersMax));
  HEADROOM_ASSIGN(const auto interval, json.optional_int("no_rope_layer_interval", 1, kLayersMax));
  std::vector<bool> rotated;
  if (!flags || flags->empty()) {
    for (int64_t i = 0; i < layers; ++i) rotated.push_back((i + 1) % interval.value_or(4) != 0);
    return rotated;
  }
  for (const text::JsonView& flag : *flags) {
    HEADROOM_ASSIGN(const int64_t value, flag.to_int(0, 1));
    rotated.push_back(value == 1);
  }
  if (static_cast<int64_t>(rotated.size()) < layers) {
    return json.error_at("no_rope_layers", "expected an entry a layer");
  }
  rotated.resize(static_cast<size_t>(layers));
  return rotated;
}

void read_layer_masks(ConfigReader& in, const text::JsonView& json, DecoderSpec& spec,
                      const std::function<bool(int64_t)>& slides) {
  spec.mask_of_layer = in.take(named_masks(json, spec.layers), std::vector<LayerMask>());
  if (!spec.mask_of_layer.empty()) return;
  for (int64_t i = 0; i < spec.layers; ++i) {
    spec.mask_of_layer.push_back(slides(i) ? LayerMask::sliding : LayerMask::full);
  }
}

void add_mask_of_windows(DecoderSpec& spec) {
  const auto& masks = spec.mask_of_layer;
  if (std::ranges::find(masks, LayerMask::sliding) == masks.end()) return;
  spec.masks.push_back(LayerMask::sliding);
}

void read_sliding_window(ConfigReader& in, const text::JsonView& json, DecoderSpec& spec,
                         std::optional<int64_t> otherwise) {
  if (json.json().find("sliding_window") == nullptr) {
    if (!otherwise) return;
    spec.sliding_window = *otherwise;
  } else if (json.has("sliding_window")) {
    spec.sliding_window = in.size({"sliding_window"}, {}, kWindowMax);
  } else {
    return;
  }
  spec.masks = {LayerMask::sliding};
}

}  // namespace headroom::model
