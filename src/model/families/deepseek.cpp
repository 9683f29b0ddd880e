// DeepSeek-V2 to V3.2, and what is built like them (Kimi K2, GLM-4.7-Flash, GLM-5).
#include <algorithm>
#include <memory>

#include "model/blocks/mla.h"
#include "model/families/moe.h"
#include "model/families/moe_config.h"

namespace headroom::model {

namespace {

struct DeepseekConfig {
  MoeConfig moe;
  LatentAttentionShape attention;
  MoeLayout layout;
  int64_t dense_layers = 0;
  std::vector<bool> has_indexer;  // GLM-5, by layer
};

// Sizes of a head where the config does not say.
struct LatentDefaults {
  int64_t query_rank = 1536;
  int64_t nope_dim = 128;
  int64_t value_dim = 128;
};
constexpr LatentDefaults kDeepseek;

Result<DeepseekConfig> read_config(const text::JsonView& json, const BuildOptions& options,
                                   ConfigReader& reader, const LatentDefaults& defaults) {
  DeepseekConfig c;
  c.moe.read(reader, options, {"n_routed_experts", "num_local_experts"}, "moe_intermediate_size");
  LatentAttentionShape& a = c.attention;
  a.hidden = c.moe.decoder.hidden;
  a.heads = c.moe.attention.heads;
  // null says that queries are projected in one step.
  if (json.json().find("q_lora_rank") == nullptr) {
    a.query_rank = defaults.query_rank;
  } else {
    HEADROOM_ASSIGN(a.query_rank, json.optional_int("q_lora_rank", 1, kSizeMax));
  }
  a.kv_rank = reader.size({"kv_lora_rank"}, 512);
  a.nope_dim = reader.size({"qk_nope_head_dim"}, defaults.nope_dim);
  a.rope_dim = reader.size({"qk_rope_head_dim"}, 64);
  a.value_dim = reader.size({"v_head_dim"}, defaults.value_dim);
  a.bias = reader.flag("attention_bias", false);
  a.dropout = c.moe.attention.dropout;
  c.moe.decoder.rotary_dims = a.rope_dim;
  const int64_t widest = a.nope_dim + std::max(a.rope_dim, a.value_dim);
  reader.require(a.heads * widest <= kSizeMax, "qk_nope_head_dim",
                 "more than 2^24 columns in all heads");
  reader.require(a.rope_dim % 2 == 0, "qk_rope_head_dim", "is odd");
  c.layout.router_first = false;
  return c;
}

Graph build(const DeepseekConfig& c, const BuildOptions& options) {
  LayerMaker make;
  make.attention = [&](GraphBuilder& g, int64_t index, const std::string& name) -> AttentionCall {
    LatentAttentionShape shape = c.attention;
    if (shape.shares_keys && !c.has_indexer[static_cast<size_t>(index)]) shape.indexer.reset();
    auto block = std::make_shared<LatentAttention>(g, shape, name);
    return [&g, &options, block](const Var& x, const LayerInputs& inputs) {
      return (*block)(g, options, x, inputs);
    };
  };
  make.feed_forward = [&](GraphBuilder& g, int64_t index, const std::string& name) {
    return index >= c.dense_layers ? moe_call(g, options, c.moe, c.layout, name)
                                   : dense_call(g, c.moe, name);
  };
  return build_decoder(c.moe.decoder, options, make);
}

// V3's router and its shared experts; with how many groups where the config does not say.
void read_sigmoid_router(ConfigReader& reader, DeepseekConfig& c, int64_t groups,
                         int64_t chosen_groups) {
  RouterShape& router = c.moe.router;
  router.routing = Routing::sigmoid_groups;
  router.normalized = reader.flag("norm_topk_prob", true);
  router.groups = reader.size({"n_group"}, groups, kExpertsMax);
  router.chosen_groups = reader.size({"topk_group"}, chosen_groups, kExpertsMax);
  reader.require(router.experts % router.groups == 0, "n_group", "does not divide the experts");
  reader.require(router.experts / router.groups >= 2, "n_group",
                 "leaves fewer than the two experts a group that are looked at");
  reader.require(router.chosen_groups <= router.groups, "topk_group", "more groups than there are");
  c.layout.shared_size =
      c.moe.experts.intermediate * reader.size({"n_shared_experts"}, 1, kExpertsMax);
  reader.require(c.layout.shared_size <= kSizeMax, "n_shared_experts",
                 "more than 2^24 columns in the shared experts");
}

// "indexer_types" or, as transformers derives it, every index_topk_freq-th layer from
// index_skip_topk_offset on, or the letters of index_topk_pattern.
Result<std::vector<bool>> indexer_layers(const text::JsonView& json, int64_t layers) {
  std::vector<bool> full;
  HEADROOM_ASSIGN(const auto types, json.optional_array("indexer_types", kLayersMax));
  if (types) {
    for (const text::JsonView& item : *types) {
      HEADROOM_ASSIGN(const std::string type, item.to_string());
      if (type != "full" && type != "shared") return item.error("expected full or shared");
      full.push_back(type == "full");
    }
  } else if (json.has("index_topk_pattern")) {
    HEADROOM_ASSIGN(const std::string pattern, json.get_string("index_topk_pattern"));
    for (const char letter : pattern) {
      if (letter != 'F' && letter != 'S') {
        return json.error_at("index_topk_pattern", "expected letters F and S");
      }
      full.push_back(letter == 'F');
    }
  } else {
    HEADROOM_ASSIGN(const auto every, json.optional_int("index_topk_freq", 0, kLayersMax));
    HEADROOM_ASSIGN(const auto offset, json.optional_int("index_skip_topk_offset", 0, kLayersMax));
    const int64_t period = std::max<int64_t>(every.value_or(1), 1);
    for (int64_t i = 0; i < layers; ++i) {
      full.push_back(std::max<int64_t>(i - offset.value_or(2) + 1, 0) % period == 0);
    }
  }
  if (static_cast<int64_t>(full.size()) != layers) {
    return json.error_at("indexer_types", "not one for each layer");
  }
  if (!full[0]) return json.error_at("indexer_types", "the first layer has no keys to share");
  return full;
}

Result<int64_t> first_dense_layers(const text::JsonView& json, int64_t otherwise) {
  HEADROOM_ASSIGN(const auto dense, json.optional_int("first_k_dense_replace", 0, kLayersMax));
  return dense.value_or(otherwise);
}

// "mlp_layer_types" of GLM-5 says it by layer; only dense layers before all others are known here.
Result<int64_t> dense_layers(const text::JsonView& json, int64_t layers, int64_t otherwise) {
  HEADROOM_ASSIGN(const auto types, json.optional_array("mlp_layer_types", kLayersMax));
  if (!types) return otherwise;
  int64_t count = 0;
  for (size_t i = 0; i < types->size(); ++i) {
    HEADROOM_ASSIGN(const std::string type, (*types)[i].to_string());
    if (type != "dense" && type != "sparse") return (*types)[i].error("expected dense or sparse");
    if (type != "dense") continue;
    if (static_cast<size_t>(count) != i) {
      return (*types)[i].error("a dense layer behind one with experts is not modelled");
    }
    ++count;
  }
  if (static_cast<int64_t>(types->size()) != layers) {
    return json.error_at("mlp_layer_types", "not one for each layer");
  }
  return count;
}

// Attention to the keys that an indexer chooses.
void read_indexer(ConfigReader& reader, const BuildOptions& options, int64_t heads,
                  LatentAttentionShape& attention) {
  attention.sparse = true;
  reader.require(attention.query_rank.has_value(), "q_lora_rank", "the indexer reads it");
  reader.require(options.attention != Attention::flash_attention_2, "model_type",
                 "transformers has no FlashAttention-2 implementation of this model");
  SparseIndexerShape indexer;
  indexer.hidden = attention.hidden;
  indexer.query_rank = attention.query_rank.value_or(1);
  indexer.heads = reader.size({"index_n_heads"}, heads, kHeadsMax);
  indexer.head_dim = reader.size({"index_head_dim"}, 128);
  indexer.rope_dim = attention.rope_dim;
  indexer.top_k = reader.size({"index_topk"}, 2048);
  reader.require(indexer.heads * indexer.head_dim <= kSizeMax, "index_head_dim",
                 "more than 2^24 columns in all heads");
  reader.require(indexer.head_dim > indexer.rope_dim, "index_head_dim",
                 "no more than the part of it that is rotated");
  attention.indexer = indexer;
}

}  // namespace

Result<Graph> build_deepseek_v3(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader reader(json);
  HEADROOM_ASSIGN(DeepseekConfig c, read_config(json, options, reader, kDeepseek));
  c.attention.rotary =
      reader.flag("rope_interleave", true) ? LatentRotary::interleaved : LatentRotary::halves;
  read_sigmoid_router(reader, c, 8, 4);
  HEADROOM_ASSIGN(c.dense_layers, first_dense_layers(json, 3));
  if (reader.error()) return *reader.error();
  return build(c, options);
}

Result<Graph> build_glm_moe_dsa(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader reader(json);
  HEADROOM_ASSIGN(DeepseekConfig c, read_config(json, options, reader, {2048, 192, 256}));
  c.attention.rotary = LatentRotary::interleaved;
  c.attention.shares_keys = true;
  read_indexer(reader, options, 32, c.attention);
  c.moe.decoder.masks = {LayerMask::materialized};
  c.moe.router.correction_dtype = DType::f32;
  read_sigmoid_router(reader, c, 1, 1);
  HEADROOM_ASSIGN(c.has_indexer, indexer_layers(json, c.moe.decoder.layers));
  HEADROOM_ASSIGN(const int64_t dense, first_dense_layers(json, 3));
  HEADROOM_ASSIGN(c.dense_layers, dense_layers(json, c.moe.decoder.layers, dense));
  if (reader.error()) return *reader.error();
  return build(c, options);
}

Result<Graph> build_deepseek_v32(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader reader(json);
  HEADROOM_ASSIGN(DeepseekConfig c, read_config(json, options, reader, kDeepseek));
  c.attention.rotary = LatentRotary::interleaved;
  read_indexer(reader, options, 64, c.attention);
  c.attention.indexer->rotates_halves = true;
  c.moe.decoder.masks = {LayerMask::materialized};
  c.moe.router.correction_dtype = DType::f32;
  read_sigmoid_router(reader, c, 8, 4);
  HEADROOM_ASSIGN(const int64_t dense, first_dense_layers(json, 3));
  HEADROOM_ASSIGN(c.dense_layers, dense_layers(json, c.moe.decoder.layers, dense));
  if (reader.error()) return *reader.error();
  return build(c, options);
}

// GLM-4.7-Flash: DeepSeek-V3's layers, one group of experts.
Result<Graph> build_glm4_moe_lite(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader reader(json);
  HEADROOM_ASSIGN(DeepseekConfig c, read_config(json, options, reader, {768, 192, 256}));
  c.attention.rotary =
      reader.flag("rope_interleave", true) ? LatentRotary::interleaved : LatentRotary::halves;
  c.moe.router.correction_dtype = DType::f32;
  read_sigmoid_router(reader, c, 1, 1);
  HEADROOM_ASSIGN(c.dense_layers, dense_layers(json, c.moe.decoder.layers, 1));
  if (reader.error()) return *reader.error();
  return build(c, options);
}

Result<Graph> build_deepseek_v2(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader reader(json);
  HEADROOM_ASSIGN(DeepseekConfig c, read_config(json, options, reader, kDeepseek));
  c.attention.rotary = LatentRotary::complex;
  c.moe.decoder.tables = RotaryTables::complex;
  c.moe.mlp_bias = reader.flag("mlp_bias", false);
  RouterShape& router = c.moe.router;
  router.routing = Routing::softmax_groups;
  HEADROOM_ASSIGN(const auto method, json.optional_string("topk_method"));
  router.limited_to_groups = method.value_or("greedy") == "group_limited_greedy";
  if (router.limited_to_groups) {
    router.groups = reader.size({"n_group"}, {}, kExpertsMax);
    router.chosen_groups = reader.size({"topk_group"}, {}, kExpertsMax);
    reader.require(router.experts % router.groups == 0, "n_group", "does not divide the experts");
    reader.require(router.chosen_groups <= router.groups, "topk_group",
                   "more groups than there are");
  }
  c.layout.shared_size =
      c.moe.experts.intermediate * reader.size({"n_shared_experts"}, 2, kExpertsMax);
  reader.require(c.layout.shared_size <= kSizeMax, "n_shared_experts",
                 "more than 2^24 columns in the shared experts");
  HEADROOM_ASSIGN(c.dense_layers, first_dense_layers(json, 0));
  if (reader.error()) return *reader.error();
  return build(c, options);
}

}  // namespace headroom::model
