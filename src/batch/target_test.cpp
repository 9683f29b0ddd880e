#include "batch/target.h"

#include <gtest/gtest.h>

namespace headroom::batch {
namespace {

TEST(Target, ATimeOrAMultiple) {
  EXPECT_DOUBLE_EQ(*parse_slo("itl=50ms")->itl->seconds, 0.05);
  EXPECT_DOUBLE_EQ(*parse_slo("itl_mean=0.2s")->itl->seconds, 0.2);
  const auto multiple = *parse_slo("itl=2x@32")->itl;
  EXPECT_FALSE(multiple.seconds);
  EXPECT_EQ(multiple.multiple, 2);
  EXPECT_EQ(multiple.at_batch, 32);
}

TEST(Target, FiguresOfRequestsAsTheyCome) {
  const auto slo = parse_slo("ttft_p95=500ms,itl=2x@32,itl_p99=50ms,e2e=3s,ttft=80ms");
  ASSERT_TRUE(slo) << slo.error().to_string();
  EXPECT_EQ(slo->itl->at_batch, 32);
  ASSERT_EQ(slo->latencies.size(), 4U);
  EXPECT_EQ(serving::name_of(slo->latencies[0]), "ttft_p95");
  EXPECT_DOUBLE_EQ(slo->latencies[0].seconds, 0.5);
  EXPECT_EQ(serving::name_of(slo->latencies[1]), "itl_p99");
  EXPECT_EQ(serving::name_of(slo->latencies[2]), "e2e_mean");
  EXPECT_EQ(serving::name_of(slo->latencies[3]), "ttft_mean");
}

TEST(Target, WhatIsNoneIsRefused) {
  for (const char* words : {"",
                            "itl",
                            "itl=",
                            "itl=5",
                            "itl=-5ms",
                            "itl=nanms",
                            "itl=infms",
                            "itl=2x@",
                            "itl=2x@0",
                            "itl=2x@70000",
                            "itl=2x@3z",
                            "speed=5ms",
                            ",",
                            "itl=5ms,",
                            "itl=5ms,itl=6ms",
                            "ttft=2x@32",
                            "ttft_p0=1s",
                            "ttft_p100=1s",
                            "ttft_pnan=1s",
                            "ttft_95=1s",
                            "ttft_p95=1s,ttft_p95=2s",
                            "itl_p50=1ms,itl_p99=2ms",
                            "e2e_p=1s",
                            "ttft_p95=0ms"}) {
    const auto bad = parse_slo(words);
    ASSERT_FALSE(bad) << words;
    EXPECT_EQ(bad.error().code, ErrorCode::usage) << words;
  }
}

}  // namespace
}  // namespace headroom::batch
