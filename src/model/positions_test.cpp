#include "model/positions.h"

#include <gtest/gtest.h>

#include <string>

namespace headroom::model {
namespace {

Result<std::optional<int64_t>> positions_in(const std::string& json) {
  const auto config = text::parse_json(json, "config.json");
  EXPECT_TRUE(config) << json;
  return positions_of(text::JsonView(*config, "config.json"));
}

TEST(Positions, AreFoundByEachNameAndWithinTheLanguageModelsPart) {
  EXPECT_EQ(*positions_in(R"({"n_positions": 1024})"), 1024);
  EXPECT_EQ(*positions_in(R"({"max_position_embeddings": 4096})"), 4096);
  EXPECT_EQ(*positions_in(R"({"n_ctx": 512})"), 512);
  EXPECT_EQ(*positions_in(R"({"text_config": {"max_position_embeddings": 262144}})"), 262144);
  EXPECT_EQ(*positions_in(R"({"model_type": "roberta", "max_position_embeddings": 514})"), 512);
  EXPECT_EQ(*positions_in(R"({"model_type": "camembert", "max_position_embeddings": 514})"), 512);
  EXPECT_EQ(*positions_in(R"({"model_type": "mpnet", "max_position_embeddings": 514})"), 512);
  EXPECT_EQ(*positions_in(R"({"model_type": "bert", "max_position_embeddings": 512})"), 512);
  EXPECT_EQ(*positions_in(R"({"n_ctx": 8, "text_config": {"n_positions": 16}})"), 8);
}

TEST(Positions, AreNothingWhereNoneAreStated) {
  EXPECT_EQ(*positions_in("{}"), std::nullopt);
  EXPECT_EQ(*positions_in(R"({"text_config": {}})"), std::nullopt);
}

TEST(Positions, ThatNoModelHasAreRefused) {
  EXPECT_FALSE(positions_in(R"({"n_positions": 0})"));
  EXPECT_FALSE(positions_in(R"({"n_positions": 4611686018427387904})"));
}

// Engines serve what rotary positions are stretched to, where the count is of those before.
TEST(Positions, ServedAreThoseAfterScaling) {
  const auto served_in = [](const char* words) {
    const auto config = text::parse_json(words, "config.json");
    return *served_positions_of(text::JsonView(*config, "config.json"));
  };
  EXPECT_EQ(served_in(R"({"max_position_embeddings": 4096})"), 4096);
  EXPECT_EQ(served_in(R"({"max_position_embeddings": 4096, "rope_scaling": null})"), 4096);
  EXPECT_EQ(served_in(R"({"max_position_embeddings": 4096,
                          "rope_scaling": {"type": "linear", "factor": 4}})"),
            16384);
  EXPECT_EQ(served_in(R"({"max_position_embeddings": 131072, "rope_scaling": {"factor": 8,
                          "original_max_position_embeddings": 8192}})"),
            131072);
  EXPECT_EQ(served_in(R"({"text_config": {"max_position_embeddings": 4096,
                                          "rope_scaling": {"factor": 4}}})"),
            16384);
  EXPECT_EQ(served_in(R"({"text_config": {"model_type": "gemma3_text",
                                          "max_position_embeddings": 131072,
                                          "rope_scaling": {"factor": 8}}})"),
            131072);
  EXPECT_FALSE(served_in("{}"));
}

}  // namespace
}  // namespace headroom::model
