#include "formats/serving_points.h"

#include <gtest/gtest.h>

namespace headroom::formats {
namespace {

TEST(ServingPoints, AnyOrderOfColumnsAndMissingOnes) {
  const auto points = parse_serving_points(
      "note,itl_ms,batch,throughput_tokens_per_second,kv_pct,running_mean\n"
      "x,7.5,32,4159.9,5.8,30.7\n,3.6,1,276.6,,\n",
      "points.csv");
  ASSERT_TRUE(points) << points.error().to_string();
  ASSERT_EQ(points->size(), 2U);
  EXPECT_EQ(points->front().batch, 32);
  EXPECT_DOUBLE_EQ(points->front().itl_seconds, 0.0075);
  EXPECT_DOUBLE_EQ(*points->front().kv_share, 0.058);
  EXPECT_DOUBLE_EQ(*points->front().running_mean, 30.7);
  EXPECT_FALSE(points->back().running_mean);
  EXPECT_FALSE(points->back().kv_share);
}

TEST(ServingPoints, WhatIsWrongIsNamedWithItsPlace) {
  const auto without = parse_serving_points("batch,itl_ms\n1,2\n", "points.csv");
  ASSERT_FALSE(without);
  EXPECT_NE(without.error().to_string().find("throughput_tokens_per_second"), std::string::npos);
  const char* header = "batch,throughput_tokens_per_second,itl_ms\n";
  for (const char* row : {"0,1,1", "1,0,1", "1,1,0", "1,1,-3", "70000,1,1", "1,nan,1", "1,1"}) {
    const auto bad = parse_serving_points(header + std::string(row) + "\n", "points.csv");
    ASSERT_FALSE(bad) << row;
    EXPECT_NE(bad.error().to_string().find("points.csv:2"), std::string::npos) << row;
  }
  EXPECT_FALSE(parse_serving_points(header, "points.csv"));
}

TEST(ServingPoints, NoMoreThanAThousand) {
  std::string text = "batch,throughput_tokens_per_second,itl_ms\n";
  for (size_t i = 0; i <= kMostServingPoints; ++i) text += "1,1,1\n";
  EXPECT_FALSE(parse_serving_points(text, "points.csv"));
}

}  // namespace
}  // namespace headroom::formats
