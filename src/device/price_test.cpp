#include "device/price.h"

#include <gtest/gtest.h>

namespace headroom::device {
namespace {

TEST(Price, AnHourMayBeSaidByItself) {
  const auto question = parse_price("2.10/gpu-hour,busy=0.5");
  ASSERT_TRUE(question) << question.error().to_string();
  EXPECT_DOUBLE_EQ(*question->cloud_per_hour, 2.10);
  EXPECT_DOUBLE_EQ(question->busy, 0.5);
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
  for (const char* words :
       {"", "2.49", "/gpu-hour", "2.49/gpu-hour,cloud=2", "cloud=2/gpu-hour", "cloud=", "cloud=-1",
        "cloud=0", "cloud=inf", "cloud=nan", "cloud=1e300", "cloud=1,cloud=2", "years=4",
        "cloud=1,busy=2", "owned=1,watts=700", "cloud=1,watts=700,kwh=1", "cloud=1,", "aws=1"}) {
    const auto question = parse_price(words);
    ASSERT_FALSE(question) << words;
    EXPECT_EQ(question.error().code, ErrorCode::usage) << words;
    EXPECT_FALSE(question.error().hint.empty()) << words;
  }
}

}  // namespace
}  // namespace headroom::device
