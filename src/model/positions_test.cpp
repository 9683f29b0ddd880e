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

}  // namespace
}  // namespace headroom::model
