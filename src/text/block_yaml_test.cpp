#include "text/block_yaml.h"

#include <gtest/gtest.h>

namespace headroom::text {
namespace {

TEST(BlockYaml, MappingsOfMappings) {
  const auto json = parse_block_yaml(
      "---\n# settings\na: 1\nb: 'no'\nc: \"x: y\"  # a remark\nd:\n  e: true\n  f:\n    g: -2.5\n"
      "h:\ni: {}\nj: word with # no, and spaces\nk: null\nl: yes\r\n",
      "x.yaml");
  ASSERT_TRUE(json) << json.error().to_string();
  EXPECT_EQ(json->dump(),
            R"({"a":1,"b":"no","c":"x: y","d":{"e":true,"f":{"g":-2.5}},"h":null,"i":{},)"
            R"("j":"word with","k":null,"l":"yes"})");
  EXPECT_EQ(parse_block_yaml("", "x.yaml")->dump(), "{}");
}

TEST(BlockYaml, ListsOfScalars) {
  EXPECT_EQ(
      parse_block_yaml("a: [x, 'y', 3, true]\nb:\n- x\n- 1.5\nc:\n  - null\nd: []\n", "x.yaml")
          ->dump(),
      R"({"a":["x","y",3,true],"b":["x",1.5],"c":[null],"d":[]})");
  EXPECT_EQ(parse_block_yaml("a: [\n  'x', # one\n  y,\n]\nb:\n  - [1,\n2]\n", "x.yaml")->dump(),
            R"({"a":["x","y"],"b":[[1,2]]})");
  // As far left as its name is its own.
  EXPECT_EQ(parse_block_yaml("a:\n  b:\n  - x\n  c: 1\n", "x.yaml")->dump(),
            R"({"a":{"b":["x"],"c":1}})");
}

TEST(BlockYaml, ListsOfMappings) {
  const auto json = parse_block_yaml(
      "datasets:\n  - path: a/b\n    type:\n      field: x\n    splits: [train]\n\n"
      "  # another\n  -   path: c\n      shards: 2\n  - d\n  -\n    e: 1\n  -\n"
      "after:\n- f: 1\n- - g\n  - h: 2\n    i: 3\n",
      "x.yaml");
  ASSERT_TRUE(json) << json.error().to_string();
  EXPECT_EQ(json->dump(), R"({"datasets":[{"path":"a/b","type":{"field":"x"},"splits":["train"]},)"
                          R"({"path":"c","shards":2},"d",{"e":1},null],)"
                          R"("after":[{"f":1},["g",{"h":2,"i":3}]]})");
}

TEST(BlockYaml, TextOverLines) {
  const auto json = parse_block_yaml(
      "a: |\n  x # no remark\n\n    y: 'z\nb: >-\n  one\n  two\nc:\n  - |\n    - d\n  - e\nf: |\n",
      "x.yaml");
  ASSERT_TRUE(json) << json.error().to_string();
  EXPECT_EQ(json->dump(),
            R"({"a":"x # no remark\n\n  y: 'z","b":"one two","c":["- d","e"],"f":""})");
}

TEST(BlockYaml, QuotedWords) {
  const auto json = parse_block_yaml(
      "a: 'it''s # so'  # it's\nb: \"x \\\"y\\\" # z\\n\"\n'c: d': it's\n\"e\": \"f: g\"\n"
      "h: http://i:j\nk: ['l', \"m\"]\n",
      "x.yaml");
  ASSERT_TRUE(json) << json.error().to_string();
  EXPECT_EQ(json->dump(), R"({"a":"it's # so","b":"x \"y\" # z\n","c: d":"it's","e":"f: g",)"
                          R"("h":"http://i:j","k":["l","m"]})");
}

TEST(BlockYaml, WhatIsMoreNamesItsLine) {
  struct Case {
    const char* words;
    const char* place;
  };
  for (const Case& c : {Case{"a: 1\n- b\n", "x.yaml:2"},
                        Case{"a: [1, [2]]\n", "x.yaml:1"},
                        Case{"a: [1,, 2]\n", "x.yaml:1"},
                        Case{"a:\n- b: 1\n c: 2\n", "x.yaml:3"},
                        Case{"a:\n- b: 1\n    c: 2\n", "x.yaml:3"},
                        Case{"a:\n- b\n  c\n", "x.yaml:3"},
                        Case{"a: &b 1\n", "x.yaml:1"},
                        Case{"a: *b\n", "x.yaml:1"},
                        Case{"a: {b: 1}\n", "x.yaml:1"},
                        Case{"a: |2\n    b\n", "x.yaml:1"},
                        Case{"a: [b,\n", "x.yaml:1"},
                        Case{"a\n", "x.yaml:1"},
                        Case{"a: 1\n  b: 2\n", "x.yaml:2"},
                        Case{"a:\n  b: 1\n c: 2\n", "x.yaml:3"},
                        Case{"a: 'b\n", "x.yaml:1"},
                        Case{"a: \"b\\x41\"\n", "x.yaml:1"},
                        Case{"a: 'b' c\n", "x.yaml:1"},
                        Case{"a: \"b\\\"\n", "x.yaml:1"},
                        Case{"\tb: 1\n", "x.yaml:1"},
                        Case{": 1\n", "x.yaml:1"},
                        Case{"a:b\n", "x.yaml:1"}}) {
    const auto json = parse_block_yaml(c.words, "x.yaml");
    ASSERT_FALSE(json) << c.words;
    EXPECT_EQ(json.error().where, c.place) << c.words;
  }
}

TEST(BlockYaml, HasBounds) {
  std::string deep;
  for (size_t i = 0; i < 2 * kMostYamlDepth; ++i) deep += std::string(i, ' ') + "a:\n";
  EXPECT_FALSE(parse_block_yaml(deep + std::string(2 * kMostYamlDepth, ' ') + "b: 1\n", "x"));
  std::string dashes = "a:\n";
  for (size_t i = 0; i < 10'000; ++i) dashes += "- ";
  EXPECT_FALSE(parse_block_yaml(dashes + "b\n", "x"));
  std::string lines = "a: |\n";
  for (size_t i = 0; i <= kMostYamlLines; ++i) lines += "  b\n";
  EXPECT_FALSE(parse_block_yaml(lines, "x"));
  std::string tall;
  for (size_t i = 0; i <= kMostYamlLines; ++i) tall += "a: 1\n";
  EXPECT_FALSE(parse_block_yaml(tall, "x"));
}

}  // namespace
}  // namespace headroom::text
