#include "ops/faster_groups.h"

#include <gtest/gtest.h>

namespace headroom::ops {
namespace {

TEST(FasterGroups, OfWords) {
  const auto rules = OperatorRules::load("");
  const auto groups = faster_groups("gemm=4,non_gemm=1.5", *rules);
  ASSERT_TRUE(groups) << groups.error().to_string();
  ASSERT_EQ(groups->size(), 2U);
  EXPECT_EQ((*groups)[0].title, "GEMM");
  EXPECT_EQ((*groups)[0].factor, 4);
  EXPECT_EQ((*groups)[1].factor, 1.5);
  EXPECT_TRUE(faster_groups("", *rules)->empty());
  for (const char* const wrong :
       {"gemm", "gemm=", "gemm=0", "gemm=-1", "gemm=nan", "gemm=inf", "gemm=2x", "gem=2", "=2", ",",
        "gemm=2,,", "gemm=2,", "gemm,attention=2", "gemm=1e9"}) {
    EXPECT_FALSE(faster_groups(wrong, *rules)) << wrong;
  }
}

// The first column of the answer has titles.
TEST(FasterGroups, ByTitle) {
  const auto rules = OperatorRules::load("");
  const auto groups =
      faster_groups("Memory and Layout=2,GEMM=4,routing, sorting, sampling=3", *rules);
  ASSERT_TRUE(groups) << groups.error().to_string();
  ASSERT_EQ(groups->size(), 3U);
  EXPECT_EQ((*groups)[0].name, "memory");
  EXPECT_EQ((*groups)[1].name, "gemm");
  EXPECT_EQ((*groups)[2].name, "routing");
  EXPECT_EQ((*groups)[2].factor, 3);
  EXPECT_EQ(faster_groups("all non-gemm operators=2", *rules)->front().name, "non_gemm");
}

TEST(FasterGroups, AGroupIsNamedOnce) {
  const auto rules = OperatorRules::load("");
  for (const char* const twice :
       {"gemm=4,attention=2,gemm=2", "gemm=4,GEMM=4", "memory=2,memory and layout=2"}) {
    const auto groups = faster_groups(twice, *rules);
    ASSERT_FALSE(groups) << twice;
    EXPECT_NE(groups.error().message.find("is named twice"), std::string::npos);
  }
}

}  // namespace
}  // namespace headroom::ops
