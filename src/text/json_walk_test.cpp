#include "text/json_walk.h"

#include <gtest/gtest.h>

namespace headroom::text {
namespace {

struct Walked {
  std::vector<std::pair<size_t, std::string>> items;
  std::optional<JsonFault> fault;
};

Walked walk(std::string_view document, size_t longest = 1000) {
  JsonWalk walk(ByteFeed(document, "test"), {"a", "b"}, longest);
  Walked walked;
  while (walk.next()) {
    EXPECT_EQ(document.substr(static_cast<size_t>(walk.offset()), walk.item().size()), walk.item());
    walked.items.emplace_back(walk.array(), walk.item());
  }
  walked.fault = walk.fault();
  return walked;
}

using Items = std::vector<std::pair<size_t, std::string>>;

constexpr std::string_view kDocument =
    R"({"tool": [{"x": 1, "s": "}[", "records": {"b": [{"q": "]"}, 7, {"r": [{}]}], "a": []}},
        {"a": [[{"not": "wanted"}], {"a": 2}], "c": [{"no": 1}]}]})";

TEST(JsonWalk, FindsArraysAtAnyDepth) {
  const Walked walked = walk(kDocument);
  EXPECT_FALSE(walked.fault);
  EXPECT_EQ(walked.items, (Items{{1, R"({"q": "]"})"}, {1, R"({"r": [{}]})"}, {0, R"({"a": 2})"}}));
}

// Every cut gives a beginning of the items, and says so.
TEST(JsonWalk, CutAtEveryByte) {
  const Items whole = walk(kDocument).items;
  for (size_t cut = 0; cut < kDocument.size(); ++cut) {
    const Walked part = walk(kDocument.substr(0, cut));
    EXPECT_TRUE(part.fault) << cut;
    ASSERT_LE(part.items.size(), whole.size());
    EXPECT_TRUE(std::equal(part.items.begin(), part.items.end(), whole.begin())) << cut;
  }
}

TEST(JsonWalk, WhatCannotBeRead) {
  for (const char* text : {"", "x", "7", "{\"a\" 1}", "{\"a\":}", "[1 2", "{7:1}", "{\"a\":[{]}"}) {
    EXPECT_TRUE(walk(text).fault) << text;
  }
  EXPECT_TRUE(walk(R"({"a":[{"long":1}]})", 5).fault);
  EXPECT_TRUE(walk(std::string(JsonWalk::kDepth + 1, '[')).fault);
}

}  // namespace
}  // namespace headroom::text
