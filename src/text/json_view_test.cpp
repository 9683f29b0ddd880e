#include <gtest/gtest.h>

#include "text/json.h"

namespace headroom::text {
namespace {

constexpr int64_t kMax = INT64_MAX;

class JsonViewTest : public ::testing::Test {
 protected:
  Json json_ = parse_json(R"({
    "hidden": 4096, "float": 4096.0, "half": 0.5, "big": 1e300, "negative": -1, "huge": 1e19,
    "null": null, "name": "x", "yes": true, "list": [1, "two", {"deep": 3}],
    "rope": {"factor": 8.0, "a/b~c": "s"}})",
                          "c.json")
                   .value();
  JsonView view_{json_, "c.json"};
};

TEST_F(JsonViewTest, ReadsWhatIsThere) {
  EXPECT_EQ(*view_.get_int("hidden", 1, 8192), 4096);
  EXPECT_EQ(*view_.get_int("float", 1, 8192), 4096);
  EXPECT_EQ(*view_.get_double("hidden", 0, 1e9), 4096.0);
  EXPECT_EQ(*view_.get_double("half", 0, 1), 0.5);
  EXPECT_EQ(*view_.get_string("name"), "x");
  EXPECT_TRUE(*view_.get_bool("yes"));
  const JsonView rope = *view_.get_object("rope");
  EXPECT_EQ(*rope.get_double("factor", 1, 64), 8.0);
  const std::vector<JsonView> list = *view_.get_array("list");
  EXPECT_EQ(*list[0].to_int(0, 5), 1);
  EXPECT_EQ(*list[1].to_string(), "two");
  EXPECT_EQ(*list[2].get_int("deep", 0, 5), 3);
  EXPECT_EQ(rope.get_members()->size(), 2U);
}

TEST_F(JsonViewTest, ErrorsNameThePlace) {
  const auto where = [](const auto& result) { return result.error().where; };
  EXPECT_EQ(where(view_.get_int("absent", 0, 1)), "c.json#/absent");
  EXPECT_EQ(where(view_.get_int("null", 0, 1)), "c.json#/null");
  EXPECT_EQ(where(view_.get_object("rope")->get_int("a/b~c", 0, 1)), "c.json#/rope/a~1b~0c");
  EXPECT_EQ(where((*view_.get_array("list"))[2].get_bool("deep")), "c.json#/list/2/deep");
  EXPECT_EQ(where((*view_.get_array("list"))[0].get_bool("deep")), "c.json#/list/0");
}

TEST_F(JsonViewTest, RangesAndKinds) {
  const auto message = [](const auto& result) { return result.error().message; };
  EXPECT_EQ(message(view_.get_int("hidden", 1, 4095)), "4096 is outside 1 to 4095");
  EXPECT_EQ(message(view_.get_int("negative", 1, 10)), "-1 is outside 1 to 10");
  EXPECT_EQ(message(view_.get_int("half", 0, 1)), "expected an integer, found 0.5");
  EXPECT_EQ(message(view_.get_int("name", 0, 1)), "expected an integer, found \"x\"");
  EXPECT_FALSE(view_.get_int("big", 0, kMax));
  EXPECT_FALSE(view_.get_int("huge", 0, kMax));
  EXPECT_EQ(message(view_.get_double("big", 0, 1e9)), "1e+300 is outside 0.0 to 1e+09");
  EXPECT_EQ(message(view_.get_bool("hidden")), "expected true or false, found 4096");
  EXPECT_EQ(message(view_.get_object("list")), "expected an object, found an array of 3");
  EXPECT_FALSE(view_.get_array("list", 2));
  EXPECT_FALSE(view_.get_array("rope"));
}

TEST_F(JsonViewTest, OptionalIsNothingOnlyWhereMissingOrNull) {
  EXPECT_FALSE(view_.optional_int("absent", 0, 1)->has_value());
  EXPECT_FALSE(view_.optional_string("null")->has_value());
  EXPECT_EQ(**view_.optional_int("hidden", 0, kMax), 4096);
  EXPECT_FALSE(view_.optional_int("name", 0, 1));
  EXPECT_FALSE(view_.optional_bool("hidden"));
  EXPECT_TRUE((*view_.optional_object("rope"))->has("factor"));
  EXPECT_EQ((*view_.optional_array("list"))->size(), 3U);
  // A document that is not an object has no members to be missing.
  const Json number(1);
  EXPECT_FALSE(JsonView(number, "n").optional_int("a", 0, 1));
}

TEST(JsonView, LongKeysAndValuesAreCutInMessages) {
  const Json json = Json::object({{"s", std::string(100'000, 'x')}});
  const Error error = JsonView(json, "f").get_int("s", 0, 1).error();
  EXPECT_LT(error.to_string().size(), 200U);
  EXPECT_LT(JsonView(json, "f").get_int(std::string(100'000, 'k'), 0, 1).error().where.size(),
            300U);
}

}  // namespace
}  // namespace headroom::text
