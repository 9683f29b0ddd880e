#include "model/families/moe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "model/blocks/expert_exchange.h"
#include "model/blocks/experts.h"
#include "text/json.h"

namespace headroom::model {
namespace {

const char* const kMixtral = R"({"model_type": "mixtral", "vocab_size": 101, "hidden_size": 48,
    "intermediate_size": 88, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 3, "num_local_experts": 5, "num_experts_per_tok": 2})";

const char* const kDeepseek = R"({"model_type": "deepseek_v3", "vocab_size": 101, "hidden_size": 48,
    "intermediate_size": 88, "num_hidden_layers": 2, "num_attention_heads": 6, "kv_lora_rank": 20,
    "q_lora_rank": 36, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 24,
    "n_routed_experts": 8, "n_group": 4, "topk_group": 2, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32})";

using Build = Result<Graph> (*)(const text::JsonView&, const BuildOptions&);

Result<Graph> built(Build build, const std::string& json, const BuildOptions& options = {}) {
  const auto parsed = text::parse_json(json, "config.json");
  if (!parsed) return parsed.error();
  return build({*parsed, "config.json"}, options);
}

// The config with one member replaced or added.
std::string with(const std::string& config, const std::string& key, const std::string& value) {
  auto json = *text::parse_json(config, "config.json");
  json.set(key, *text::parse_json(value, "value"));
  return json.dump();
}

size_t count_of(const Graph& graph, OpKind kind) {
  return static_cast<size_t>(
      std::ranges::count(graph.operations, kind, [](const Operation& o) { return o.kind; }));
}

TEST(Mixtral, ExpertsAreModulesBeforeVersionFive) {
  BuildOptions options;
  options.transformers = {4, 48};
  const auto graph = built(build_mixtral, kMixtral, options);
  ASSERT_TRUE(graph) << graph.error().to_string();
  const auto named = [&](const std::string& name) {
    return std::ranges::count(graph->parameters, name, &Parameter::name);
  };
  EXPECT_EQ(named("model.layers.1.block_sparse_moe.experts.4.w2.weight"), 1);
  EXPECT_EQ(named("model.layers.0.mlp.experts.gate_up_proj"), 0);
  EXPECT_EQ(count_of(*graph, OpKind::grouped_mm), 0U);
  EXPECT_EQ(count_of(*graph, OpKind::nonzero), 10U);  // every expert of both layers
}

// Until transformers 4.47 key and value heads were repeated before flash attention: two more copies
// a layer.
TEST(Mixtral, RepeatsHeadsForFlashAttentionBeforeItKnewGroups) {
  const auto expands = [](op::Version transformers) {
    BuildOptions options;
    options.transformers = transformers;
    options.attention = Attention::flash_attention_2;
    const auto graph = built(build_mixtral, kMixtral, options);
    return count_of(*graph, OpKind::expand);
  };
  EXPECT_EQ(expands({4, 47}), expands({4, 48}) + 2 * 2);
}

TEST(Mixtral, BothVersionsHaveTheSameNumberOfParameters) {
  BuildOptions old;
  old.transformers = {4, 48};
  const auto before = built(build_mixtral, kMixtral, old);
  const auto after = built(build_mixtral, kMixtral);
  ASSERT_TRUE(before && after);
  EXPECT_EQ(parameter_count(*before, false), parameter_count(*after, false));
}

TEST(Mixtral, LoopFollowsTheRowsOfExperts) {
  BuildOptions options;
  options.batch = 1;
  options.sequence = 8;
  options.experts = ExpertsImplementation::eager;
  options.tokens_per_expert = {16, 0, 0, 0, 0};  // one expert is hit, in each of two layers
  const auto graph = built(build_mixtral, kMixtral, options);
  ASSERT_TRUE(graph);
  EXPECT_EQ(count_of(*graph, OpKind::index_add_assign), 2U);
}

// FlashAttention-2 takes values that are as wide as keys: narrower ones are filled up, a layer
// each.
TEST(Deepseek, NarrowValuesAreFilledUpForFlashAttention) {
  BuildOptions options;
  options.attention = Attention::flash_attention_2;
  const auto wide = built(build_deepseek_v3, kDeepseek, options);
  const auto narrow = built(build_deepseek_v3, with(kDeepseek, "v_head_dim", "16"), options);
  ASSERT_TRUE(wide) << wide.error().to_string();
  ASSERT_TRUE(narrow) << narrow.error().to_string();
  EXPECT_EQ(count_of(*narrow, OpKind::pad), count_of(*wide, OpKind::pad) + 2);
}

TEST(RowsOfExperts, AddUpToTheChoicesAndDifferByAtMostOne) {
  BuildOptions options;
  options.batch = 3;
  options.sequence = 7;
  ExpertsShape shape;
  shape.experts = 5;
  shape.top_k = 2;
  const auto rows = rows_of_experts(options, shape);
  int64_t total = 0;
  for (const int64_t count : rows) total += count;
  EXPECT_EQ(total, 42);
  EXPECT_LE(*std::ranges::max_element(rows) - *std::ranges::min_element(rows), 1);
}

TEST(SharedOutExperts, ARankHasItsPartOfThemAndOfTheRows) {
  const std::string six = with(kMixtral, "num_local_experts", "6");
  BuildOptions options;
  const auto whole = built(build_mixtral, six, options);
  options.expert_ranks = 3;
  const auto part = built(build_mixtral, six, options);
  ASSERT_TRUE(whole && part);
  const int64_t expert = 3 * 88 * 48;
  EXPECT_EQ(parameter_count(*whole, false) - parameter_count(*part, false), 2 * 4 * expert);
  // Counts and rows go, and rows come back, a layer each.
  EXPECT_EQ(count_of(*part, OpKind::exchange_rows), 2U * 3U);
  EXPECT_EQ(std::ranges::count(part->regions, RegionKind::experts, &Region::kind), 2);
  EXPECT_FALSE(built(build_mixtral, kMixtral, options));  // five among three

  options.batch = 2;
  options.sequence = 8;
  const ExpertsShape shape{.experts = 6, .top_k = 2};
  EXPECT_EQ(arrived_rows(options, shape), 32);
  options.expert_share = 1.5;
  EXPECT_EQ(arrived_rows(options, shape), 48);
  options.expert_share = 100;  // a token of three ranks goes to two of an expert's at the most
  EXPECT_EQ(arrived_rows(options, shape), 3 * 16 * 2);
  options.expert_share = 1e-6;
  EXPECT_EQ(arrived_rows(options, shape), 1);
}

TEST(MixtureConfigs, RefuseWhatCannotBe) {
  const auto refused = [](Build build, const std::string& config, const std::string& place) {
    const auto graph = built(build, config);
    return !graph && graph.error().to_string().find(place) != std::string::npos;
  };
  EXPECT_TRUE(
      refused(build_mixtral, with(kMixtral, "num_experts_per_tok", "6"), "num_experts_per_tok"));
  EXPECT_TRUE(
      refused(build_mixtral, with(kMixtral, "num_key_value_heads", "4"), "num_key_value_heads"));
  EXPECT_TRUE(
      refused(build_mixtral, with(kMixtral, "num_local_experts", "0"), "num_local_experts"));
  EXPECT_TRUE(
      refused(build_mixtral, with(kMixtral, "intermediate_size", "16777216"), "intermediate_size"));
  EXPECT_TRUE(refused(build_deepseek_v3, with(kDeepseek, "n_group", "3"), "n_group"));
  EXPECT_TRUE(refused(build_deepseek_v3, with(kDeepseek, "topk_group", "5"), "topk_group"));
  EXPECT_TRUE(
      refused(build_deepseek_v3, with(kDeepseek, "qk_rope_head_dim", "7"), "qk_rope_head_dim"));
  EXPECT_TRUE(refused(build_deepseek_v3, with(kDeepseek, "qk_nope_head_dim", "16777216"),
                      "qk_nope_head_dim"));
  EXPECT_TRUE(built(build_deepseek_v3, kDeepseek));
  // Two experts of each group are looked at, and two are drawn.
  const std::string without_shared = with(kDeepseek, "num_key_value_heads", "3");
  const std::string dots = with(without_shared, "n_shared_experts", "1");
  EXPECT_TRUE(built(build_dots1, dots));
  EXPECT_TRUE(refused(build_dots1, without_shared, "n_shared_experts"));
  EXPECT_TRUE(refused(build_dots1, with(dots, "n_group", "8"), "n_group"));
  const std::string one_expert =
      with(with(kMixtral, "num_local_experts", "1"), "num_experts_per_tok", "1");
  EXPECT_TRUE(refused(build_phimoe, one_expert, "num_local_experts"));
}

TEST(Llama4, NamesOfLayersMustFitThem) {
  const std::string config = with(kMixtral, "head_dim", "8");
  EXPECT_TRUE(built(build_llama4, config));
  EXPECT_TRUE(built(build_llama4, with(config, "no_rope_layers", "[]")));
  EXPECT_FALSE(built(build_llama4, with(config, "no_rope_layers", "[1]")));
  EXPECT_FALSE(built(build_llama4, with(config, "no_rope_layers", "[1, 2]")));
  EXPECT_FALSE(built(build_llama4, with(config, "layer_types", R"(["full_attention"])")));
  EXPECT_FALSE(built(build_llama4, with(config, "head_dim", "7")));
}

// A parameter that no gradient reaches is nobody's to train.
TEST(Ernie, TheCorrectionOfTheChoiceIsNotTrained) {
  const std::string config = with(with(with(kMixtral, "moe_num_experts", "5"), "moe_k", "2"),
                                  "moe_intermediate_size", "32");
  const auto graph = built(build_ernie4_5_moe, config);
  ASSERT_TRUE(graph);
  EXPECT_EQ(parameter_count(*graph, false) - parameter_count(*graph, true), 5);
}

TEST(GptOss, LayerTypesMustFitTheLayers) {
  const std::string config = with(kMixtral, "head_dim", "8");
  EXPECT_TRUE(built(build_gpt_oss, config));
  EXPECT_FALSE(built(build_gpt_oss, with(config, "layer_types", R"(["full_attention"])")));
  EXPECT_FALSE(built(build_gpt_oss, with(config, "layer_types", R"(["full_attention", "odd"])")));
}

}  // namespace
}  // namespace headroom::model
