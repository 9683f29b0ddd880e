#include "model/hidden_size.h"

#include <gtest/gtest.h>

#include <string>

namespace headroom::model {
namespace {

Result<std::optional<int64_t>> size_in(const std::string& json) {
  const auto config = text::parse_json(json, "config.json");
  EXPECT_TRUE(config) << json;
  return hidden_size_of(text::JsonView(*config, "config.json"));
}

TEST(HiddenSize, IsFoundByEachNameAndWithinTheLanguageModelsPart) {
  EXPECT_EQ(*size_in(R"({"hidden_size": 4096})"), 4096);
  EXPECT_EQ(*size_in(R"({"n_embd": 768})"), 768);
  EXPECT_EQ(*size_in(R"({"n_embed": 1024})"), 1024);  // BLOOM's, and Falcon's former one
  EXPECT_EQ(*size_in(R"({"d_model": 512})"), 512);
  EXPECT_EQ(*size_in(R"({"dim": 384})"), 384);  // DistilBERT's
  EXPECT_EQ(*size_in(R"({"text_config": {"hidden_size": 2560}})"), 2560);
}

TEST(HiddenSize, IsNothingWhereNoneIsStatedAndRefusedWhereNoModelHasIt) {
  EXPECT_EQ(*size_in("{}"), std::nullopt);
  EXPECT_FALSE(size_in(R"({"hidden_size": 0})"));
}

}  // namespace
}  // namespace headroom::model
