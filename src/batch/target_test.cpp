#include "batch/target.h"

#include <gtest/gtest.h>

namespace headroom::batch {
namespace {

TEST(Target, ATimeOrAMultiple) {
  EXPECT_DOUBLE_EQ(*parse_slo("itl=50ms")->seconds, 0.05);
  EXPECT_DOUBLE_EQ(*parse_slo("itl_mean=0.2s")->seconds, 0.2);
  const auto multiple = *parse_slo("itl=2x@32");
  EXPECT_FALSE(multiple.seconds);
  EXPECT_EQ(multiple.multiple, 2);
  EXPECT_EQ(multiple.at_batch, 32);
}

TEST(Target, WhatIsNoneIsRefused) {
  for (const char* words : {"", "itl", "itl=", "itl=5", "itl=-5ms", "itl=nanms", "itl=infms",
                            "itl=2x@", "itl=2x@0", "itl=2x@70000", "itl=2x@3z", "speed=5ms"}) {
    const auto bad = parse_slo(words);
    ASSERT_FALSE(bad) << words;
    EXPECT_EQ(bad.error().code, ErrorCode::usage) << words;
  }
  for (const char* words : {"ttft_p95=500ms", "itl_p99=50ms", "e2e=3s"}) {
    EXPECT_EQ(parse_slo(words).error().code, ErrorCode::unavailable) << words;
  }
}

}  // namespace
}  // namespace headroom::batch
