#include "text/json_items.h"

#include <gtest/gtest.h>

namespace headroom::text {
namespace {

struct Read {
  std::vector<std::string> items;
  std::vector<int64_t> offsets;
  std::vector<std::pair<std::string, std::string>> members;
  std::vector<JsonFault> faults;
  bool is_cut = false;
  std::optional<Error> error;
};

Read read(std::string_view document, const JsonItemsLimits& limits = {}) {
  JsonItems items(ByteFeed(document, "test"), "traceEvents", limits);
  Read read;
  for (;;) {
    const Result<bool> more = items.next();
    if (!more) {
      read.error = more.error();
      break;
    }
    if (!*more) break;
    read.items.emplace_back(items.item());
    read.offsets.push_back(items.offset());
  }
  read.members = items.members();
  read.faults = items.faults();
  read.is_cut = items.is_cut();
  return read;
}

using Strings = std::vector<std::string>;

TEST(JsonItems, MembersOnBothSidesOfTheArray) {
  const std::string_view document =
      R"( {"a": 1, "traceEvents": [ {"x": "}{\"]"}, {"y": {"z": [1]}} ], "b": {"c": "]"}, "d": "e"} )";
  const Read got = read(document);
  EXPECT_FALSE(got.error);
  EXPECT_EQ(got.items, (Strings{R"({"x": "}{\"]"})", R"({"y": {"z": [1]}})"}));
  for (size_t i = 0; i < got.items.size(); ++i) {
    EXPECT_EQ(document.substr(static_cast<size_t>(got.offsets[i]), got.items[i].size()),
              got.items[i]);
  }
  ASSERT_EQ(got.members.size(), 3U);
  EXPECT_EQ(got.members[0], (std::pair<std::string, std::string>("a", "1")));
  EXPECT_EQ(got.members[1].second, R"({"c": "]"})");
  EXPECT_EQ(got.members[2].second, R"("e")");
  EXPECT_TRUE(got.faults.empty());
  EXPECT_FALSE(got.is_cut);
}

TEST(JsonItems, TheArrayMayBeTheDocument) {
  EXPECT_EQ(read("\xEF\xBB\xBF[{\"a\":1},\n{}]").items, (Strings{"{\"a\":1}", "{}"}));
  EXPECT_TRUE(read("[]").items.empty());
}

TEST(JsonItems, WhatIsLongerThanABufferComesWhole) {
  std::string document = "[";
  Strings items;
  for (int i = 0; i < 50; ++i) {
    items.push_back("{\"text\":\"" + std::string(static_cast<size_t>(i) * 30'000, 'x') + "\"}");
    document += (i == 0 ? "" : ",") + items.back();
  }
  EXPECT_EQ(read(document + "]").items, items);
}

TEST(JsonItems, ACutDocumentGivesWhatIsWhole) {
  const std::string document = "{\"traceEvents\":[\n{\"a\":1},\n{\"b\":\"2";
  const Read got = read(document);
  EXPECT_FALSE(got.error);
  EXPECT_EQ(got.items, Strings{"{\"a\":1}"});
  EXPECT_TRUE(got.is_cut);
  ASSERT_FALSE(got.faults.empty());
  EXPECT_EQ(got.faults[0].offset, 26);
  // Every cut gives a beginning of the items, and says so.
  const std::string whole = document + "\"}\n]}";
  for (size_t cut = 20; cut < whole.size() - 2; ++cut) {
    const Read part = read(std::string_view(whole).substr(0, cut));
    EXPECT_FALSE(part.error) << cut;
    EXPECT_TRUE(part.is_cut) << cut;
    EXPECT_LE(part.items.size(), 2U);
  }
}

TEST(JsonItems, GoesOnBehindAnItemThatDoesNotEnd) {
  JsonItemsLimits limits;
  limits.item = 2000;
  std::string document = "[{\"n\":0},\n{\"lost\": {\"its\": \"brace\",\n";
  for (int i = 1; i < 1000; ++i) document += "{\"n\":" + std::to_string(i) + "},\n";
  document += "{\"n\":1000}]";
  const Read got = read(document, limits);
  EXPECT_FALSE(got.error);
  EXPECT_EQ(got.items.size(), 1001U);
  EXPECT_EQ(got.faults.size(), 1U);
}

TEST(JsonItems, WhatIsNoObjectIsNoted) {
  const Read got = read("[{\"a\":1}, 7, null, \"x\", [1], {\"b\":2}]");
  EXPECT_EQ(got.items, (Strings{"{\"a\":1}", "{\"b\":2}"}));
  EXPECT_EQ(got.faults.size(), 4U);
  EXPECT_FALSE(got.is_cut);
}

TEST(JsonItems, ABracketDoesNotCloseABrace) {
  const Read got = read("[{\"a\":1],\n{\"b\":2}]");
  EXPECT_EQ(got.items, Strings{"{\"b\":2}"});
  EXPECT_EQ(got.faults.size(), 1U);
}

TEST(JsonItems, TooManyFaultsAreAnError) {
  std::string document = "[";
  for (int i = 0; i < 10'000; ++i) document += "7,";
  EXPECT_TRUE(read(document + "7]").error);
}

TEST(JsonItems, WhatIsNoTraceIsAnError) {
  for (const char* document : {"", "   ", "hello", "7", "{", "{\"a\":1}", "{\"a\"", "{]",
                               "{\"a\":", "{\"traceEvents\": 7}", "\"traceEvents\""}) {
    const Read got = read(document);
    ASSERT_TRUE(got.error) << document;
    EXPECT_NE(got.error->where.find("test: byte "), std::string::npos);
  }
}

TEST(JsonItems, MembersTooLargeAreLeftOut) {
  JsonItemsLimits limits;
  limits.members = 40;
  const Read got =
      read("{\"big\":\"" + std::string(100, 'x') + "\",\"a\":1,\"traceEvents\":[]}", limits);
  EXPECT_FALSE(got.error);
  ASSERT_EQ(got.members.size(), 1U);
  EXPECT_EQ(got.members[0].first, "a");
}

}  // namespace
}  // namespace headroom::text
