// DeepSeek-V2 and V3, and what is built like them (Kimi K2).
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
  bool mlp_bias = false;
};

Result<DeepseekConfig> read_config(const text::JsonView& json, const BuildOptions& options,
                                   ConfigReader& reader) {
  DeepseekConfig c;
  c.moe.read(reader, options, {"n_routed_experts", "num_local_experts"}, "moe_intermediate_size");
  LatentAttentionShape& a = c.attention;
  a.hidden = c.moe.decoder.hidden;
  a.heads = c.moe.attention.heads;
  HEADROOM_ASSIGN(a.query_rank, json.optional_int("q_lora_rank", 1, kSizeMax));
  a.kv_rank = reader.size({"kv_lora_rank"}, 512);
  a.nope_dim = reader.size({"qk_nope_head_dim"}, 128);
  a.rope_dim = reader.size({"qk_rope_head_dim"}, 64);
  a.value_dim = reader.size({"v_head_dim"}, 128);
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
  make.attention = [&](GraphBuilder& g, int64_t, const std::string& name) -> AttentionCall {
    auto block = std::make_shared<LatentAttention>(g, c.attention, name);
    return [&g, &options, block](const Var& x, const LayerInputs& inputs) {
      return (*block)(g, options, x, inputs);
    };
  };
  make.feed_forward = [&](GraphBuilder& g, int64_t index, const std::string& name) {
    return index >= c.dense_layers ? moe_call(g, options, c.moe, c.layout, name)
                                   : dense_call(g, c.moe, name, c.mlp_bias);
  };
  return build_decoder(c.moe.decoder, options, make);
}

}  // namespace

Result<Graph> build_deepseek_v3(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader reader(json);
  HEADROOM_ASSIGN(DeepseekConfig c, read_config(json, options, reader));
  c.attention.rotary =
      reader.flag("rope_interleave", true) ? LatentRotary::interleaved : LatentRotary::halves;
  RouterShape& router = c.moe.router;
  router.routing = Routing::sigmoid_groups;
  router.normalized = reader.flag("norm_topk_prob", true);
  router.groups = reader.size({"n_group"}, 8, kExpertsMax);
  router.chosen_groups = reader.size({"topk_group"}, 4, kExpertsMax);
  reader.require(router.experts % router.groups == 0, "n_group", "does not divide the experts");
  reader.require(router.experts / router.groups >= 2, "n_group",
                 "leaves fewer than the two experts a group that are looked at");
  reader.require(router.chosen_groups <= router.groups, "topk_group", "more groups than there are");
  c.layout.shared_size =
      c.moe.experts.intermediate * reader.size({"n_shared_experts"}, 1, kExpertsMax);
  reader.require(c.layout.shared_size <= kSizeMax, "n_shared_experts",
                 "more than 2^24 columns in the shared experts");
  HEADROOM_ASSIGN(const auto dense, json.optional_int("first_k_dense_replace", 0, kLayersMax));
  c.dense_layers = dense.value_or(3);
  if (reader.error()) return *reader.error();
  return build(c, options);
}

Result<Graph> build_deepseek_v2(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader reader(json);
  HEADROOM_ASSIGN(DeepseekConfig c, read_config(json, options, reader));
  c.attention.rotary = LatentRotary::complex;
  c.moe.decoder.tables = RotaryTables::complex;
  c.mlp_bias = reader.flag("mlp_bias", false);
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
  HEADROOM_ASSIGN(const auto dense, json.optional_int("first_k_dense_replace", 0, kLayersMax));
  c.dense_layers = dense.value_or(0);
  if (reader.error()) return *reader.error();
  return build(c, options);
}

}  // namespace headroom::model
