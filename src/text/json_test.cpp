#include "text/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

namespace headroom::text {
namespace {

Json parse_ok(std::string_view text) {
  Result<Json> json = parse_json(text, "f");
  EXPECT_TRUE(json) << json.error().to_string();
  return json ? *json : Json();
}

Error parse_bad(std::string_view text, const JsonLimits& limits = {}) {
  const Result<Json> json = parse_json(text, "f", limits);
  EXPECT_FALSE(json) << text;
  return json ? Error{} : json.error();
}

TEST(Json, ReadsEveryKind) {
  const Json json =
      parse_ok(R"( {"n":null,"t":true,"i":-3,"d":2.5,"s":"a\u00e9\n","a":[1,[]],"o":{}} )");
  EXPECT_TRUE(json.find("n")->is_null());
  EXPECT_TRUE(json.find("t")->as_bool());
  EXPECT_EQ(json.find("i")->as_int(), -3);
  EXPECT_EQ(json.find("d")->as_double(), 2.5);
  EXPECT_EQ(json.find("s")->as_string(), "a\u00e9\n");
  EXPECT_EQ(json.find("a")->size(), 2U);
  EXPECT_TRUE(json.find("o")->is_object());
  EXPECT_EQ(json.find("absent"), nullptr);
}

TEST(Json, KeepsTheOrderOfMembers) {
  const std::string text = R"({"z":1,"a":{"y":2,"b":3},"m":[]})";
  EXPECT_EQ(parse_ok(text).dump(), text);
}

TEST(Json, LastOfEqualNamesCountsAtTheFirstPlace) {
  EXPECT_EQ(parse_ok(R"({"a":1,"b":2,"a":3,"c":4,"b":5})").dump(), R"({"a":3,"b":5,"c":4})");
}

TEST(Json, NumbersAreExact) {
  EXPECT_EQ(parse_ok("9223372036854775807").as_int(), INT64_MAX);
  EXPECT_EQ(parse_ok("-9223372036854775808").as_int(), INT64_MIN);
  EXPECT_EQ(parse_ok("9223372036854775808").as_double(), 9223372036854775808.0);
  EXPECT_EQ(parse_ok("123456789012345678901234567890").as_double(),
            123456789012345678901234567890.0);
  EXPECT_EQ(parse_ok("1e-400").as_double(), 0.0);
  EXPECT_EQ(parse_ok("1e5").kind(), Json::Kind::number);
  std::mt19937_64 random(7);
  for (int i = 0; i < 20'000; ++i) {
    double value = 0;
    const uint64_t bits = random();
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    EXPECT_EQ(parse_ok(Json(value).dump()).as_double(), value);
  }
}

TEST(Json, WritesShortestAndKeepsTheKind) {
  EXPECT_EQ(Json(0.1).dump(), "0.1");
  EXPECT_EQ(Json(5.0).dump(), "5.0");
  EXPECT_EQ(Json(5).dump(), "5");
  EXPECT_EQ(Json(std::nan("")).dump(), "null");
  EXPECT_EQ(Json(INFINITY).dump(), "null");
  EXPECT_EQ(Json("a\"\\\n\t\x01/\x7F").dump(), R"("a\"\\\n\t\u0001/\u007f")");
  EXPECT_EQ(Json("\xFF\xC3").dump(), "\"\uFFFD\uFFFD\"");
}

TEST(Json, WritesIndented) {
  Json json = Json::object();
  json.set("a", Json::array({1, "x"})).set("b", Json::object()).set("a2", true);
  EXPECT_EQ(json.dump(2),
            "{\n  \"a\": [\n    1,\n    \"x\"\n  ],\n  \"b\": {},\n  \"a2\": true\n}");
  json.set("a", nullptr);
  EXPECT_EQ(json.dump(), R"({"a":null,"b":{},"a2":true})");
}

TEST(Json, ErrorsSayWhere) {
  EXPECT_EQ(parse_bad("{\n  \"a\": 1,\n  oops}").where, "f:3:3");
  EXPECT_NE(parse_bad("[1, 2").message.find("truncated"), std::string::npos);
  EXPECT_NE(parse_bad(" \n").message.find("is empty"), std::string::npos);
  EXPECT_NE(parse_bad("{} x").message.find("end of the file"), std::string::npos);
  EXPECT_NE(parse_bad("[NaN]").message.find("NaN"), std::string::npos);
  EXPECT_NE(parse_bad("[-Infinity]").message.find("not"), std::string::npos);
  EXPECT_NE(parse_bad("[1e999]").message.find("out of range"), std::string::npos);
  for (const char* bad : {"{\"a\"}", "[1,]", "nul", "\"\xFF\"", "\"\\ud800\"", "01", "'a'", "{a:1}",
                          "// c\n1", "\"a\nb\"", "]", "\x1F\x8B"}) {
    EXPECT_FALSE(parse_bad(bad).message.empty()) << bad;
  }
}

TEST(Json, LimitsHold) {
  const std::string deep_ok = std::string(64, '[') + std::string(64, ']');
  EXPECT_TRUE(parse_json(deep_ok, "f"));
  EXPECT_NE(parse_bad(std::string(100'000, '[')).message.find("nested"), std::string::npos);
  JsonLimits limits;
  limits.bytes = Bytes(10);
  EXPECT_NE(parse_bad("[1,2,3,4,5]", limits).message.find("limit"), std::string::npos);
  limits.bytes = Bytes(100);
  limits.values = 5;
  EXPECT_TRUE(parse_json("[1,2,3,4]", "f", limits));
  EXPECT_NE(parse_bad("[1,2,3,4,5]", limits).message.find("more values"), std::string::npos);
}

TEST(Json, ManyEqualNamesTakeNoQuadraticTime) {
  std::string text = "{";
  for (int i = 0; i < 300'000; ++i) text += "\"k" + std::to_string(i % 1000) + "\":1,";
  text += "\"end\":2}";
  EXPECT_EQ(parse_ok(text).size(), 1001U);
}

TEST(Json, ByteOrderMarkIsSkipped) { EXPECT_EQ(parse_ok("\xEF\xBB\xBF[1]").size(), 1U); }

}  // namespace
}  // namespace headroom::text
