#include "model/families/moe.h"

#include <algorithm>
#include <memory>

#include "model/families/decoder_config.h"
#include "model/families/moe_config.h"

namespace headroom::model {

namespace {

constexpr op::Version kFusedExperts{5, 0};

// A Mixtral block before transformers 5.0: a Linear for the router, modules for the experts.
FeedForwardCall mixtral_modules(GraphBuilder& g, const BuildOptions& options,
                                const MoeConfig& config, const std::string& name) {
  struct Block {
    Linear gate;
    ExpertModules experts;
  };
  auto block = std::make_shared<Block>(
      Block{Linear(g, name + ".gate", config.decoder.hidden, config.experts.experts, false),
            ExpertModules(g, config.experts, name + ".experts")});
  return [&g, &options, config, block](const Var& x) {
    const Var rows = g.view(x, {-1, config.decoder.hidden});
    const Var logits = block->gate(g, rows);
    Var weights = g.softmax(logits, 1, DType::f32);
    Var chosen;
    {
      const auto top = g.topk(weights, config.experts.top_k);
      weights = top[0];
      chosen = top[1];
    }
    weights = g.div_assign(weights, g.sum(weights, {-1}, true));
    weights = g.to_like(weights, rows);
    const Var output = block->experts(g, options, rows, chosen, weights);
    // The layer's function holds the logits, which are returned too.
    return FeedForward{g.reshape(output, {options.batch, options.sequence, config.decoder.hidden}),
                       logits};
  };
}

// partial_rotary_factor, which may stand in "rope_parameters" as well.
Result<int64_t> partial_rotary(const text::JsonView& json, int64_t head_dim, double otherwise) {
  HEADROOM_ASSIGN(auto factor, json.optional_double("partial_rotary_factor", 0, 1));
  HEADROOM_ASSIGN(const auto rope, json.optional_object("rope_parameters"));
  if (rope) {
    HEADROOM_ASSIGN(const auto inner, rope->optional_double("partial_rotary_factor", 0, 1));
    if (inner) factor = inner;
  }
  const double part = factor.value_or(otherwise);
  return std::max<int64_t>(2, static_cast<int64_t>(static_cast<double>(head_dim) * part));
}

MoeLayout shared_layout(ConfigReader& reader, const MoeConfig& config,
                        std::optional<int64_t> otherwise = 1) {
  MoeLayout layout;
  layout.router_first = false;
  layout.shared_size =
      config.experts.intermediate * reader.size({"n_shared_experts"}, otherwise, kExpertsMax);
  reader.require(layout.shared_size <= kSizeMax, "n_shared_experts",
                 "more than 2^24 columns in the shared experts");
  return layout;
}

void read_groups(ConfigReader& reader, RouterShape& router, int64_t groups, int64_t chosen) {
  router.groups = reader.size({"n_group"}, groups, kExpertsMax);
  router.chosen_groups = reader.size({"topk_group"}, chosen, kExpertsMax);
  reader.require(router.experts % router.groups == 0, "n_group", "does not divide the experts");
  reader.require(router.experts / router.groups >= 2, "n_group",
                 "leaves fewer than the two experts a group that are looked at");
  reader.require(router.chosen_groups <= router.groups, "topk_group", "more groups than there are");
}

// Masks of the kinds of layers that there are, the first layer's first (transformers makes them in
// the order of a set).
void make_used_masks(DecoderShape& decoder) {
  decoder.masks.clear();
  for (const LayerMask mask : decoder.mask_of_layer) {
    if (std::ranges::find(decoder.masks, mask) == decoder.masks.end()) {
      decoder.masks.push_back(mask);
    }
  }
}

}  // namespace

Result<Graph> build_mixtral(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader reader(json);
  MoeConfig config;
  config.read(reader, options, {"num_local_experts"}, "intermediate_size");
  config.attention.repeats_for_flash = options.transformers < kGroupedFlash;
  HEADROOM_ASSIGN(const auto window, json.optional_int("sliding_window", 1, kSizeMax));
  if (window) {
    config.decoder.masks = {LayerMask::sliding};
    config.decoder.sliding_window = *window;
  }
  if (reader.error()) return *reader.error();
  LayerMaker make = layer_maker(options, config, {});
  if (options.transformers < kFusedExperts) {
    make.feed_forward_name = "block_sparse_moe";
    make.feed_forward = [&](GraphBuilder& g, int64_t, const std::string& name) {
      return mixtral_modules(g, options, config, name);
    };
  }
  return build_decoder(config.decoder, options, make);
}

Result<Graph> build_qwen2_moe(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader reader(json);
  MoeConfig config;
  config.read(reader, options, {"num_experts"}, "moe_intermediate_size");
  config.attention.qkv_bias = reader.flag("qkv_bias", true);
  config.router.cast_weights = true;
  config.router.normalized = reader.flag("norm_topk_prob", false);
  MoeLayout layout;
  layout.shared_size = reader.size({"shared_expert_intermediate_size"});
  layout.shared_name = "shared_expert";
  layout.shared_gate = true;
  // Both masks are made, whether a layer slides or not.
  config.decoder.masks = {LayerMask::full, LayerMask::sliding};
  HEADROOM_ASSIGN(config.decoder.mask_of_layer, named_masks(json, config.decoder.layers));
  if (config.decoder.mask_of_layer.empty()) {
    const bool slides = reader.flag("use_sliding_window", false);
    const int64_t full_from = reader.size({"max_window_layers"}, 28);
    for (int64_t i = 0; i < config.decoder.layers; ++i) {
      config.decoder.mask_of_layer.push_back(
          slides && (i + 1) % 2 != 0 && i < full_from ? LayerMask::sliding : LayerMask::full);
    }
    config.decoder.sliding_window = slides ? reader.size({"sliding_window"}, 4096) : 0;
  }
  HEADROOM_ASSIGN(const auto sparse, sparse_layers(json, config.decoder.layers));
  if (reader.error()) return *reader.error();
  return build_decoder(config.decoder, options, layer_maker(options, config, layout, sparse));
}

Result<Graph> build_qwen3_moe(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader reader(json);
  MoeConfig config;
  config.read(reader, options, {"num_experts"}, "moe_intermediate_size");
  config.attention.qkv_bias = reader.flag("attention_bias", false);
  config.attention.output_bias = config.attention.qkv_bias;
  config.attention.norm = HeadNorm::each_head;
  config.router.cast_weights = true;
  config.router.normalized = reader.flag("norm_topk_prob", false);
  if (reader.flag("use_sliding_window", false)) {
    config.decoder.masks = {LayerMask::sliding};
    config.decoder.sliding_window = reader.size({"sliding_window"}, 4096);
  }
  MoeLayout layout;
  layout.router_first = false;
  HEADROOM_ASSIGN(const auto sparse, sparse_layers(json, config.decoder.layers));
  if (reader.error()) return *reader.error();
  return build_decoder(config.decoder, options, layer_maker(options, config, layout, sparse));
}

Result<Graph> build_olmoe(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader reader(json);
  MoeConfig config;
  config.read(reader, options, {"num_experts", "num_local_experts"}, "intermediate_size");
  config.attention.qkv_bias = reader.flag("attention_bias", false);
  config.attention.output_bias = config.attention.qkv_bias;
  config.attention.norm = HeadNorm::all_heads;
  HEADROOM_ASSIGN(const auto clip, json.optional_double("clip_qkv", -1e30, 1e30));
  config.attention.clips = clip.has_value();
  config.router.cast_weights = true;
  config.router.normalized = reader.flag("norm_topk_prob", false);
  if (reader.error()) return *reader.error();
  return build_decoder(config.decoder, options, layer_maker(options, config, {}));
}

Result<Graph> build_glm4_moe(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader reader(json);
  MoeConfig config;
  config.read(reader, options, {"n_routed_experts"}, "moe_intermediate_size");
  config.attention.qkv_bias = reader.flag("attention_bias", false);
  if (reader.flag("use_qk_norm", false)) config.attention.norm = HeadNorm::each_head_at_last;
  config.attention.splits_rotary = true;
  HEADROOM_ASSIGN(config.attention.rotary_dims,
                  partial_rotary(json, config.attention.head_dim, 0.5));
  config.decoder.rotary_dims = config.attention.rotary_dims;
  config.router.routing = Routing::sigmoid_groups;
  config.router.correction_dtype = DType::f32;
  config.router.normalized = reader.flag("norm_topk_prob", true);
  read_groups(reader, config.router, 1, 1);
  const MoeLayout layout = shared_layout(reader, config);
  HEADROOM_ASSIGN(const auto dense, json.optional_int("first_k_dense_replace", 0, kLayersMax));
  if (reader.error()) return *reader.error();
  std::vector<bool> sparse;
  for (int64_t i = 0; i < config.decoder.layers; ++i) sparse.push_back(i >= dense.value_or(1));
  return build_decoder(config.decoder, options, layer_maker(options, config, layout, sparse));
}

Result<Graph> build_dots1(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader reader(json);
  MoeConfig config;
  config.default_kv_heads = 32;
  config.read(reader, options, {"n_routed_experts"}, "moe_intermediate_size");
  config.attention.qkv_bias = reader.flag("attention_bias", false);
  config.attention.output_bias = config.attention.qkv_bias;
  config.attention.norm = HeadNorm::each_head;
  config.router.routing = Routing::sigmoid_groups;
  config.router.normalized = reader.flag("norm_topk_prob", false);
  read_groups(reader, config.router, 1, 1);
  const MoeLayout layout = shared_layout(reader, config, {});
  HEADROOM_ASSIGN(config.decoder.mask_of_layer, named_masks(json, config.decoder.layers));
  if (config.decoder.mask_of_layer.empty()) {
    HEADROOM_ASSIGN(const auto full, json.optional_int("max_window_layers", 0, kSizeMax));
    const text::Json* window = json.json().find("sliding_window");
    const bool slides = window == nullptr || !window->is_null();
    for (int64_t i = 0; i < config.decoder.layers; ++i) {
      const bool is_full = !slides || i < full.value_or(62);
      config.decoder.mask_of_layer.push_back(is_full ? LayerMask::full : LayerMask::sliding);
    }
  }
  make_used_masks(config.decoder);
  config.decoder.sliding_window = reader.size({"sliding_window"}, 4096);
  HEADROOM_ASSIGN(const auto dense, json.optional_int("first_k_dense_replace", 0, kLayersMax));
  if (reader.error()) return *reader.error();
  std::vector<bool> sparse;
  for (int64_t i = 0; i < config.decoder.layers; ++i) sparse.push_back(i >= dense.value_or(0));
  return build_decoder(config.decoder, options, layer_maker(options, config, layout, sparse));
}

Result<Graph> build_minimax_m2(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader reader(json);
  MoeConfig config;
  config.read(reader, options, {"num_local_experts"}, "intermediate_size");
  config.attention.norm = HeadNorm::all_heads;
  config.attention.splits_rotary = true;
  HEADROOM_ASSIGN(const auto rotary, json.optional_int("rotary_dim", 2, kSizeMax));
  const int64_t head = config.attention.head_dim;
  HEADROOM_ASSIGN(config.attention.rotary_dims, partial_rotary(json, head, 1.0));
  config.attention.rotary_dims = std::min(rotary.value_or(config.attention.rotary_dims), head);
  config.decoder.rotary_dims = config.attention.rotary_dims;
  config.router.routing = Routing::sigmoid_top_k;
  if (reader.error()) return *reader.error();
  return build_decoder(config.decoder, options, layer_maker(options, config, {}));
}

Result<Graph> build_gpt_oss(const text::JsonView& json, const BuildOptions& given) {
  // transformers has no SDPA implementation of it and runs the eager one unless told otherwise.
  const BuildOptions options = without_sdpa(given);
  ConfigReader reader(json);
  MoeConfig config;
  config.read(reader, options, {"num_local_experts", "num_experts"}, "intermediate_size");
  config.attention.qkv_bias = reader.flag("attention_bias", true);
  config.attention.output_bias = config.attention.qkv_bias;
  config.attention.sinks = true;
  config.experts.clamped = true;
  config.router.routing = Routing::top_k_softmax;
  config.decoder.norm = DecoderNorm::wide_rms;
  config.decoder.tables = RotaryTables::half;
  config.decoder.masks_see_positions = false;
  config.decoder.masks = {LayerMask::full, LayerMask::sliding};
  config.decoder.sliding_window = reader.size({"sliding_window"}, 128);
  HEADROOM_ASSIGN(config.decoder.mask_of_layer, named_masks(json, config.decoder.layers));
  if (config.decoder.mask_of_layer.empty()) {
    for (int64_t i = 0; i < config.decoder.layers; ++i) {
      config.decoder.mask_of_layer.push_back(i % 2 == 0 ? LayerMask::sliding : LayerMask::full);
    }
  }
  MoeLayout layout;
  layout.router_name = "router";
  if (reader.error()) return *reader.error();
  return build_decoder(config.decoder, options, layer_maker(options, config, layout));
}

Result<Graph> build_granitemoe(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader reader(json);
  MoeConfig config;
  config.read(reader, options, {"num_local_experts"}, "intermediate_size");
  config.attention.qkv_bias = reader.flag("attention_bias", false);
  config.attention.output_bias = config.attention.qkv_bias;
  config.decoder.scaled = true;
  config.decoder.embedding_multiplier = reader.number("embedding_multiplier", 1, -1e9, 1e9);
  config.decoder.multiplies_after_masks = true;
  config.decoder.logits_divisor = reader.number("logits_scaling", 1, -1e9, 1e9);
  config.decoder.norms_first = true;
  config.router.routing = Routing::wide_top_k_softmax;
  MoeLayout layout;
  layout.router_name = "router";
  if (reader.error()) return *reader.error();
  LayerMaker make = layer_maker(options, config, layout);
  make.feed_forward_name = "block_sparse_moe";
  return build_decoder(config.decoder, options, make);
}

}  // namespace headroom::model
