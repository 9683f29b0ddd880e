#include "batch/price.h"

#include <gtest/gtest.h>

namespace headroom::batch {
namespace {

TEST(Price, OfAMillionTokens) {
  // 2.50 an hour over 18 million tokens an hour.
  const Interval cost = cost_of_million(2.5, 1, {4000, 5000, 6000});
  EXPECT_NEAR(cost.expected, 2.5 / 18, 1e-12);
  EXPECT_NEAR(cost.low, 2.5 / 21.6, 1e-12);
  EXPECT_NEAR(cost.high, 2.5 / 14.4, 1e-12);
  EXPECT_NEAR(cost_of_million(2.5, 0.5, {5000, 5000, 5000}).expected, 5.0 / 18, 1e-12);
}

TEST(Price, CloudAndOwnedSideBySide) {
  const auto question = parse_price("cloud=2.49,owned=35064,years=4,watts=1000,kwh=0.15,busy=0.6");
  ASSERT_TRUE(question);
  EXPECT_DOUBLE_EQ(question->busy, 0.6);
  const auto machines = machines_of(*question);
  ASSERT_EQ(machines.size(), 2U);
  EXPECT_DOUBLE_EQ(machines[0].per_hour, 2.49);
  EXPECT_NEAR(machines[1].per_hour, 1.15, 1e-12);  // 35064 over 35064 hours, and a kW
  EXPECT_EQ(machines[1].made_of, "35064 over 4 years and 1000 W at 0.15 a kWh");
}

TEST(Price, WhatIsNoPriceSaysSo) {
  for (const char* words : {"", "2.49", "cloud=", "cloud=-1", "cloud=0", "cloud=inf", "cloud=nan",
                            "cloud=1e300", "cloud=1,cloud=2", "years=4", "cloud=1,busy=2",
                            "owned=1,watts=700", "cloud=1,watts=700,kwh=1", "cloud=1,", "aws=1"}) {
    const auto question = parse_price(words);
    ASSERT_FALSE(question) << words;
    EXPECT_EQ(question.error().code, ErrorCode::usage) << words;
    EXPECT_FALSE(question.error().hint.empty()) << words;
  }
}

}  // namespace
}  // namespace headroom::batch
