#include "report/bench/decode_intervals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace headroom::report {
namespace {

timing::TimeInterval around(double seconds, double half_width_log) {
  return {seconds * std::exp(-half_width_log), seconds, seconds * std::exp(half_width_log)};
}

timing::DecodeStep sample() {
  timing::DecodeStep step;
  step.attention.time = around(3e-3, 0.3);
  step.matmul.time = around(2e-3, 0.2);
  step.other.time = around(1e-3, 0.4);
  return step;
}

// Against drawing the parts apart from each other: nine of ten shares are inside, one end each.
TEST(DecodeIntervals, SharesAreInsideAsOftenAsTheirParts) {
  const timing::DecodeStep step = sample();
  const Spread spread = share_spread(step, step.attention.time);
  constexpr double kDeviations = 1.6449;  // of 90 %
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  const auto draw = [&](double seconds, double half) {
    return seconds * std::exp(half / kDeviations * normal(random));
  };
  int below = 0;
  int above = 0;
  constexpr int kDrawn = 20'000;
  for (int i = 0; i < kDrawn; ++i) {
    const double attention = draw(3e-3, 0.3);
    const double share = attention / (attention + draw(2e-3, 0.2) + draw(1e-3, 0.4));
    below += share < spread.low ? 1 : 0;
    above += share > spread.high ? 1 : 0;
  }
  EXPECT_NEAR(below / static_cast<double>(kDrawn), 0.05, 0.015);
  EXPECT_NEAR(above / static_cast<double>(kDrawn), 0.05, 0.015);
}

TEST(DecodeIntervals, WhatWasNotSeenMayBeThere) {
  timing::DecodeStep step = sample();
  EXPECT_EQ(share_spread(step, step.host).high, 0);
  step.host = {0, 0, 2e-3};
  const Spread host = share_spread(step, step.host);
  EXPECT_EQ(host.low, 0);
  EXPECT_DOUBLE_EQ(host.high, 0.25);
}

TEST(DecodeIntervals, TheLongerTimeIsTheLowerRate) {
  const Spread tokens = rate_spread(64, {1e-3, 2e-3, 4e-3});
  EXPECT_DOUBLE_EQ(tokens.low, 16'000);
  EXPECT_DOUBLE_EQ(tokens.high, 64'000);
}

}  // namespace
}  // namespace headroom::report
