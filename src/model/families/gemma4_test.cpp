#include "model/families/gemma4.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "text/json.h"

namespace headroom::model {
namespace {

const char* const kText = R"({"model_type": "gemma4_text", "vocab_size": 101, "hidden_size": 48,
    "intermediate_size": 88, "num_hidden_layers": 4, "num_attention_heads": 6,
    "num_key_value_heads": 3, "head_dim": 24, "global_head_dim": 32, "sliding_window": 10,
    "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 2,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]})";

Result<Graph> built(const std::string& json, const BuildOptions& options = {}) {
  const auto parsed = text::parse_json(json, "config.json");
  if (!parsed) return parsed.error();
  return build_gemma4_text({*parsed, "config.json"}, options);
}

std::string with(const std::string& key, const std::string& value) {
  auto json = *text::parse_json(kText, "config.json");
  json.set(key, *text::parse_json(value, "value"));
  return json.dump();
}

int64_t parameters_of(const std::string& json) {
  const auto graph = built(json);
  EXPECT_TRUE(graph) << graph.error().to_string();
  return graph ? parameter_count(*graph, false) : 0;
}

TEST(Gemma4, ALayerThatTakesOverHasNoKeysOfItsOwn) {
  const int64_t sliding = 2 * 3 * 24 * 48 + 24;  // keys, values, the keys' norm
  const int64_t full = 2 * 3 * 32 * 48 + 32;
  EXPECT_EQ(parameters_of(with("num_kv_shared_layers", "0")) - parameters_of(kText),
            sliding + full);
  EXPECT_EQ(parameters_of(with("use_double_wide_mlp", "true")) - parameters_of(kText),
            2 * 3 * 48 * 88);
}

// What transformers writes has a table of layers in place of the keys of a checkpoint.
TEST(Gemma4, HeadsMayStandLayerByLayer) {
  const std::string table = R"({"1": {"head_dim": 32}, "3": {"head_dim": 32}})";
  auto json = *text::parse_json(with("per_layer_config", table), "config.json");
  json.set("global_head_dim", 8);
  EXPECT_EQ(parameters_of(json.dump()), parameters_of(kText));
  EXPECT_FALSE(built(with("per_layer_config", R"({"1": {"head_dim": 32}})")));
  EXPECT_FALSE(built(with("per_layer_config", R"({"0": {"head_dim": 8}})")));
}

TEST(Gemma4, RefusesWhatCannotBe) {
  const auto refused = [](const char* key, const char* value, const char* place) {
    const auto graph = built(with(key, value));
    return !graph && graph.error().to_string().find(place) != std::string::npos;
  };
  EXPECT_TRUE(refused("num_kv_shared_layers", "4", "num_kv_shared_layers"));
  EXPECT_TRUE(refused("num_kv_shared_layers", "3", "num_kv_shared_layers"));  // no full one before
  EXPECT_TRUE(refused("global_head_dim", "33", "global_head_dim"));
  EXPECT_TRUE(refused("hidden_size_per_layer_input", "16777216", "hidden_size_per_layer_input"));
  EXPECT_TRUE(refused("layer_types", R"(["full_attention"])", "layer_types"));
  EXPECT_TRUE(refused("enable_moe_block", "true", "num_experts"));
}

// Keys and values would have to go from one stage to the next.
TEST(Gemma4, StagesShareNothing) {
  BuildOptions options;
  options.parts = {{0, 2, true, false}, {2, 2, false, true}};
  EXPECT_FALSE(built(kText, options));
  EXPECT_TRUE(built(with("num_kv_shared_layers", "0"), options));
}

}  // namespace
}  // namespace headroom::model
