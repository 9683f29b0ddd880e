// What the configs of families with linear or sparse attention may say, and what is refused. That
// their steps are right is tests/python/test_exactness.py's to show.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "model/load.h"
#include "text/json.h"

namespace headroom::model {
namespace {

const char* const kHybrid = R"({"model_type": "qwen3_5_text", "vocab_size": 100,
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_key_head_dim": 4, "linear_value_head_dim": 3})";

const char* const kLightning = R"({"model_type": "minimax", "vocab_size": 100, "hidden_size": 16,
    "intermediate_size": 24, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_local_experts": 2, "num_experts_per_tok": 1, "block_size": 8})";

const char* const kSparse = R"({"model_type": "glm_moe_dsa", "vocab_size": 100, "hidden_size": 16,
    "intermediate_size": 24, "moe_intermediate_size": 8, "num_hidden_layers": 4,
    "num_attention_heads": 4, "kv_lora_rank": 6, "q_lora_rank": 10, "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 2, "num_experts_per_tok": 1,
    "index_n_heads": 2, "index_head_dim": 12, "index_topk": 5})";

Result<Graph> built(const std::string& json, const BuildOptions& options = {}) {
  const auto parsed = text::parse_json(json, "config.json");
  if (!parsed) return parsed.error();
  return build_graph({*parsed, "config.json"}, options);
}

// The config with one member replaced or added.
std::string with(const std::string& config, const std::string& key, const std::string& value) {
  auto json = *text::parse_json(config, "config.json");
  json.set(key, *text::parse_json(value, "value"));
  return json.dump();
}

std::string refusal(const std::string& json, const BuildOptions& options = {}) {
  const auto graph = built(json, options);
  return graph ? "built" : graph.error().to_string();
}

int64_t count_of(const Graph& graph, const std::string& part) {
  return std::ranges::count_if(graph.parameters, [&](const Parameter& parameter) {
    return parameter.name.find(part) != std::string::npos;
  });
}

TEST(Hybrid, EveryFourthLayerHasFullAttentionUnlessTheConfigSaysOtherwise) {
  EXPECT_EQ(count_of(*built(kHybrid), "linear_attn.A_log"), 3);
  EXPECT_EQ(count_of(*built(kHybrid), "self_attn.q_proj"), 1);
  EXPECT_EQ(count_of(*built(with(kHybrid, "full_attention_interval", "2")), "A_log"), 2);
  const auto types = R"(["full_attention", "full_attention", "full_attention",
                         "linear_attention"])";
  EXPECT_EQ(count_of(*built(with(kHybrid, "layer_types", types)), "A_log"), 1);
}

TEST(Hybrid, TheTextPartOfAConfigForTextAndImagesIsTheModel) {
  const std::string both =
      R"({"model_type": "qwen3_5", "vision_config": {"depth": 27}, "text_config": )" +
      std::string(kHybrid) + "}";
  const auto inner = built(both);
  ASSERT_TRUE(inner) << inner.error().to_string();
  EXPECT_EQ(parameter_count(*inner, false), parameter_count(*built(kHybrid), false));
}

TEST(Hybrid, RefusesWhatIsNoModel) {
  EXPECT_NE(refusal(with(kHybrid, "layer_types", R"(["full_attention"])")).find("entry a layer"),
            std::string::npos);
  EXPECT_NE(refusal(with(kHybrid, "layer_types", R"([1, 2, 3, 4])")).find("layer_types"),
            std::string::npos);
  EXPECT_NE(refusal(with(kHybrid, "linear_num_value_heads", "3")).find("multiple"),
            std::string::npos);
  EXPECT_NE(refusal(with(kHybrid, "linear_key_head_dim", "16777216")).find("2^22"),
            std::string::npos);
  EXPECT_NE(refusal(with(kHybrid, "linear_conv_kernel_dim", "0")).find("linear_conv_kernel_dim"),
            std::string::npos);
}

// Every chunk of every linear layer is operators of its own: a sequence cannot ask for any number.
TEST(Hybrid, RefusesASequenceOfTooManyChunks) {
  BuildOptions options;
  options.sequence = int64_t{1} << 24;
  EXPECT_NE(refusal(kHybrid, options).find("262144 chunks"), std::string::npos);
  EXPECT_NE(refusal(kLightning, options).find("blocks in all layers"), std::string::npos);
}

TEST(Lightning, EveryOtherLayerIsLinear) {
  EXPECT_EQ(count_of(*built(kLightning), "output_gate"), 2);
  EXPECT_NE(refusal(with(kLightning, "layer_types", R"(["full_attention"])")).find("each layer"),
            std::string::npos);
  EXPECT_NE(
      refusal(with(kLightning, "layer_types", R"(["a", "b", "c", "d"])")).find("layer type 'a'"),
      std::string::npos);
}

TEST(Sparse, IndexersFollowThePatternOfTheConfig) {
  EXPECT_EQ(count_of(*built(kSparse), "indexer.wk"), 4);
  EXPECT_EQ(count_of(*built(with(kSparse, "index_topk_pattern", R"("FSSF")")), "indexer.wk"), 2);
  EXPECT_EQ(count_of(*built(with(kSparse, "index_topk_freq", "2")), "indexer.wk"), 3);
  const auto types = R"(["full", "shared", "shared", "shared"])";
  EXPECT_EQ(count_of(*built(with(kSparse, "indexer_types", types)), "indexer.wk"), 1);
}

TEST(Sparse, RefusesWhatCannotRun) {
  EXPECT_NE(refusal(with(kSparse, "index_topk_pattern", R"("SFFF")")).find("no keys to share"),
            std::string::npos);
  EXPECT_NE(refusal(with(kSparse, "index_topk_pattern", R"("FX")")).find("letters F and S"),
            std::string::npos);
  EXPECT_NE(refusal(with(kSparse, "index_head_dim", "4")).find("index_head_dim"),
            std::string::npos);
  EXPECT_NE(refusal(with(kSparse, "mlp_layer_types", R"(["sparse", "dense", "dense", "dense"])"))
                .find("not modelled"),
            std::string::npos);
  BuildOptions flash;
  flash.attention = Attention::flash_attention_2;
  EXPECT_NE(refusal(kSparse, flash).find("FlashAttention-2"), std::string::npos);
}

}  // namespace
}  // namespace headroom::model
