// Models of text and images: what is tied, what is declared and never read, what is refused.
#include "model/families/vision_tower.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "model/load.h"

namespace headroom::model {
namespace {

Result<Graph> build(const std::string& type, const std::string& text, const std::string& more,
                    const std::string& vision = R"({"depth": 1, "embed_dim": 16, "hidden_size": 16,
                        "num_hidden_layers": 1, "intermediate_size": 24, "num_heads": 2,
                        "num_attention_heads": 2, "patch_size": 4, "image_size": 8})") {
  const auto config = text::parse_json(
      R"({"model_type": ")" + type +
          R"(", "text_config": {"vocab_size": 100, "hidden_size": 16, "intermediate_size": 24,
          "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8)" +
          text + R"(}, "vision_config": )" + vision + more + "}",
      "test");
  BuildOptions options;
  options.batch = 1;
  options.sequence = 8;
  return build_graph({*config, "test"}, options);
}

bool is_tied(const Result<Graph>& graph) {
  return std::ranges::any_of(graph.value().parameters,
                             [](const Parameter& p) { return p.tied_to.has_value(); });
}

TEST(VisionTower, WhatIsTiedIsSaidWhereTransformersLooks) {
  const std::string tied = R"(, "tie_word_embeddings": true)";
  EXPECT_FALSE(is_tied(build("mistral3", "", "")));
  EXPECT_TRUE(is_tied(build("mistral3", tied, "")));
  EXPECT_TRUE(is_tied(build("mistral3", "", tied)));
  EXPECT_TRUE(is_tied(build("qwen2_vl", tied, "")));
  EXPECT_TRUE(is_tied(build("qwen2_5_vl", tied, "")));
  EXPECT_FALSE(is_tied(build("qwen3_vl", tied, "")));
  EXPECT_TRUE(is_tied(build("qwen3_vl", "", tied)));
  EXPECT_TRUE(is_tied(build("gemma3", "", "")));
}

TEST(VisionTower, ItsParametersComeFirstAndNothingReadsThem) {
  const Result<Graph> graph = build("gemma3", "", "");
  ASSERT_TRUE(graph) << graph.error().to_string();
  const auto reads = [&](const Parameter& parameter) {
    return std::ranges::any_of(graph->operations, [&](const Operation& operation) {
      return std::ranges::find(operation.inputs, parameter.value) != operation.inputs.end();
    });
  };
  bool in_tower = true;
  for (const Parameter& parameter : graph->parameters) {
    const bool is_text = parameter.name.starts_with("model.language_model") || parameter.tied_to;
    EXPECT_EQ(reads(parameter) || parameter.tied_to, is_text) << parameter.name;
    EXPECT_TRUE(in_tower || is_text) << parameter.name;
    in_tower &= !is_text;
  }
}

TEST(VisionTower, WhatIsNotThereOrNotModelledIsRefused) {
  EXPECT_FALSE(build("gemma3", "", "", "null"));
  EXPECT_FALSE(build("gemma3", "", "", R"({"image_size": 8, "patch_size": 16})"));
  EXPECT_FALSE(build("mistral3", "", R"(, "vision_feature_layer": [-1, -2])"));
  EXPECT_FALSE(build("mistral3", R"(, "model_type": "llama")", ""));
  EXPECT_FALSE(build("qwen3_vl", "", "", R"({"depth": 1000000})"));
}

}  // namespace
}  // namespace headroom::model
