// Gemma 4 (transformers' Gemma4ForCausalLM, Gemma4ForConditionalGeneration; 5.23).
#include "model/families/gemma4.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "model/blocks/gemma4_layer.h"
#include "model/families/decoder_config.h"
#include "model/families/gemma4_towers.h"
#include "model/families/moe_config.h"
#include "model/language_part.h"

namespace headroom::model {

namespace {

constexpr int64_t kDefaultWindow = 512;
constexpr int64_t kPeriod = 6;  // every sixth layer sees everything

struct Heads {
  int64_t head_dim = 0, kv_heads = 0;
  bool operator==(const Heads&) const = default;
};

// What a config that transformers wrote says of a layer: "per_layer_config": {"5": {...}}.
Result<Heads> heads_of_layer(const text::JsonView& layers, int64_t layer, const Heads& otherwise) {
  HEADROOM_ASSIGN(const auto own, layers.optional_object(std::to_string(layer)));
  if (!own) return otherwise;
  HEADROOM_ASSIGN(const auto head_dim, own->optional_int("head_dim", 1, kSizeMax));
  HEADROOM_ASSIGN(const auto kv_heads, own->optional_int("num_key_value_heads", 1, kHeadsMax));
  return Heads{head_dim.value_or(otherwise.head_dim), kv_heads.value_or(otherwise.kv_heads)};
}

// Of all layers without a window, which must have the same; the others have the config's own.
Result<Heads> heads_by_layer(const text::JsonView& layers, const Gemma4Shape& shape) {
  const Heads of_windows{shape.head_dim, shape.kv_heads};
  std::optional<Heads> full;
  for (int64_t i = 0; i < shape.layers; ++i) {
    HEADROOM_ASSIGN(const Heads heads, heads_of_layer(layers, i, of_windows));
    const bool is_full = shape.kind_of(i) == LayerMask::full;
    if (is_full && !full) full = heads;
    if (heads != (is_full ? *full : of_windows)) {
      return layers.error("layers of one kind with other heads are not modelled");
    }
  }
  return full.value_or(of_windows);
}

// Layers without a window have heads of their own.
void read_full_heads(ConfigReader& in, const text::JsonView& json, Gemma4Shape& shape) {
  constexpr int64_t kFullHeadDim = 512;
  Heads full{in.size({"global_head_dim"}, kFullHeadDim), shape.kv_heads};
  if (shape.keys_are_values && json.has("num_global_key_value_heads")) {
    full.kv_heads = in.size({"num_global_key_value_heads"}, {}, kHeadsMax);
  }
  const auto by_layer = in.take(json.optional_object("per_layer_config"), {});
  if (by_layer && !in.error()) full = in.take(heads_by_layer(*by_layer, shape), full);
  shape.full_head_dim = full.head_dim;
  shape.full_kv_heads = full.kv_heads;
  in.require(shape.heads % shape.full_kv_heads == 0, "num_global_key_value_heads",
             "does not divide num_attention_heads");
  in.require(shape.full_head_dim % 2 == 0, "global_head_dim",
             "rotates an odd number of dimensions");
  in.require(shape.heads * shape.full_head_dim <= kSizeMax, "global_head_dim",
             "more than 2^24 columns in all heads");
}

void read_mixture(ConfigReader& in, Gemma4Shape& shape) {
  if (!in.flag("enable_moe_block", false)) return;
  shape.experts.hidden = shape.hidden;
  shape.experts.experts = in.size({"num_experts"}, {}, kExpertsMax);
  shape.experts.top_k = in.size({"top_k_experts"}, {}, kExpertsMax);
  shape.experts.intermediate = in.size({"moe_intermediate_size"});
  shape.experts.activation = shape.activation;
  in.require(shape.experts.top_k <= shape.experts.experts, "top_k_experts",
             "more experts than there are");
  in.require(shape.experts.experts * shape.experts.intermediate <= kSizeMax,
             "moe_intermediate_size", "more than 2^24 columns in all experts of a layer");
}

// Which layers take over keys and values: the last ones, of which each kind must come before.
void read_sharing(ConfigReader& in, const BuildOptions& options, Gemma4Shape& shape) {
  shape.sharing_layers = in.count("num_kv_shared_layers", 0, 0, kLayersMax);
  in.require(shape.sharing_layers < shape.layers, "num_kv_shared_layers",
             "leaves no layer that makes keys and values");
  in.require(shape.sharing_layers == 0 || options.parts.empty(), "num_kv_shared_layers",
             "stages that take over keys and values from others are not modelled");
  if (in.error()) return;
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    if (!shape.takes_over(layer)) continue;
    bool is_made = false;
    for (int64_t before = 0; !shape.takes_over(before); ++before) {
      is_made |= shape.kind_of(before) == shape.kind_of(layer);
    }
    in.require(is_made, "num_kv_shared_layers", "no layer before makes keys of each kind");
  }
}

void read_kinds(ConfigReader& in, const text::JsonView& json, Gemma4Shape& shape) {
  shape.masks = {LayerMask::full, LayerMask::sliding};
  shape.sliding_window = in.size({"sliding_window"}, kDefaultWindow, kWindowMax);
  shape.mask_of_layer = in.take(named_masks(json, shape.layers), {});
  for (int64_t i = static_cast<int64_t>(shape.mask_of_layer.size()); i < shape.layers; ++i) {
    shape.mask_of_layer.push_back((i + 1) % kPeriod == 0 ? LayerMask::full : LayerMask::sliding);
  }
  if (!shape.mask_of_layer.empty()) shape.mask_of_layer.back() = LayerMask::full;
  shape.tables_by_mask = true;
}

Gemma4Shape read_gemma4(ConfigReader& in, const text::JsonView& json, const BuildOptions& options) {
  const DecoderSpec spec = read_decoder(in, json, options,
                                        {.tied = true,
                                         .activation = Activation::gelu_tanh,
                                         .activation_key = "hidden_activation",
                                         .kv_heads = 4,
                                         .head_dim = 256});
  Gemma4Shape shape;
  static_cast<DecoderFrame&>(shape) = spec;
  shape.intermediate = spec.intermediate;
  shape.heads = spec.heads;
  shape.kv_heads = spec.kv_heads;
  shape.head_dim = spec.head_dim;
  shape.activation = spec.activation;
  shape.attention_bias = in.flag("attention_bias", false);
  shape.attention_dropout = spec.attention_dropout;
  shape.keys_are_values = in.flag("attention_k_eq_v", false);
  shape.double_wide = in.flag("use_double_wide_mlp", false);
  shape.norm = DecoderNorm::powered_rms;
  shape.embedding_scale_buffer = true;
  shape.softcap_logits = json.has("final_logit_softcapping");
  const int64_t otherwise = in.is_null("hidden_size_per_layer_input") ? 0 : 256;
  shape.layer_embedding = in.count("hidden_size_per_layer_input", otherwise, 0, kSizeMax);
  shape.layer_vocabulary = in.size({"vocab_size_per_layer_input"}, 262144);
  in.require(shape.layers * shape.layer_embedding <= kSizeMax, "hidden_size_per_layer_input",
             "more than 2^24 columns for all layers");
  read_kinds(in, json, shape);
  read_full_heads(in, json, shape);
  shape.rotary_dims_of_mask = {shape.full_head_dim, shape.head_dim};
  read_mixture(in, shape);
  read_sharing(in, options, shape);
  return shape;
}

Result<Graph> build_layers(Gemma4Shape& shape, const BuildOptions& options) {
  if (shape.layer_embedding > 0) {
    shape.declare_for_layers = [&](GraphBuilder& g) { return gemma4_layer_embeddings(g, shape); };
  }
  const auto shared = std::make_shared<SharedStates>();
  if (shape.sharing_layers > 0) shape.end_sharing = [shared] { shared->clear(); };
  return build_decoder_frame(shape, options,
                             [&](GraphBuilder& g, int64_t index, const std::string& name) {
                               return gemma4_layer(g, options, shape, index, name, shared);
                             });
}

// Gemma4Model.forward: ids of images and sounds are looked for, and would be padding for the text.
Var ids_of_text(GraphBuilder& g, const Var& ids, std::vector<Var>& held) {
  const Var images = g.compare(ids);
  const Var videos = g.compare(ids);
  const Var sounds = g.compare(ids);
  Var any;
  {
    Var both = g.apply(OpKind::logical, {images, videos});
    any = g.apply(OpKind::logical, {std::move(both), sounds});
  }
  Var of_text = g.clone(ids);
  of_text = g.where(any, g.full({}, DType::i64), of_text);
  held = {images, videos, sounds, any, of_text};
  return of_text;
}

// What embeddings by layer would be found by where no ids are there; it is made all the same.
void make_padded(GraphBuilder& g, const Var& embed_weight, const Var& embedded,
                 std::vector<Var>& held) {
  const Var padding = g.select(embed_weight, 0, 0);
  const Var any = g.unsqueeze(held[3], -1);
  held.push_back(g.where(any, g.view(padding, {1, 1, -1}), embedded));
}

}  // namespace

Result<Graph> build_gemma4_text(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  Gemma4Shape shape = read_gemma4(in, json, options);
  if (in.error()) return *in.error();
  return build_layers(shape, options);
}

Result<Graph> build_gemma4(const text::JsonView& json, const BuildOptions& options) {
  HEADROOM_ASSIGN(const text::JsonView text, language_part(json));
  ConfigReader whole(json);
  ConfigReader in(text);
  Gemma4Shape shape = read_gemma4(in, text, options);
  shape.tied = whole.flag("tie_word_embeddings", true);
  shape.model_name = "model.language_model";
  // Masks only of the kinds that there are.
  std::erase_if(shape.masks, [&](LayerMask mask) {
    return std::ranges::find(shape.mask_of_layer, mask) == shape.mask_of_layer.end();
  });
  if (shape.masks.size() == 1) shape.rotary_dims_of_mask = {shape.full_head_dim};
  if (in.error()) return *in.error();
  if (whole.error()) return *whole.error();
  HEADROOM_ASSIGN(Gemma4Towers towers, gemma4_towers(json, shape.hidden));
  shape.declare_before = std::move(towers.before);
  shape.declare_behind = std::move(towers.behind);
  shape.around.emplace();
  shape.around->ids = ids_of_text;
  shape.around->behind_embedding = [has_layers = shape.layer_embedding > 0](
                                       GraphBuilder& g, const Var& embed_weight,
                                       const Var& embedded, std::vector<Var>& held) {
    if (has_layers) make_padded(g, embed_weight, embedded, held);
  };
  return build_layers(shape, options);
}

}  // namespace headroom::model
