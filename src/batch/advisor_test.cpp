#include "batch/advisor.h"

#include <gtest/gtest.h>

namespace headroom::batch {
namespace {

// An affine server: t(B) = a + b B.
BatchPoint at(int64_t batch, double spread = 1) {
  const double seconds = 4e-3 + 1e-4 * static_cast<double>(batch);
  const double rate = static_cast<double>(batch) / seconds;
  BatchPoint point{.batch = batch, .running = static_cast<double>(batch)};
  point.throughput_tokens_per_second = {rate / spread, rate, rate * spread};
  point.itl_seconds = {seconds / spread, seconds, seconds * spread};
  return point;
}

std::vector<BatchPoint> curve(double spread = 1) {
  std::vector<BatchPoint> points;
  for (const int64_t batch : {1, 32, 64, 96, 128, 256, 512}) points.push_back(at(batch, spread));
  return points;
}

TEST(Advisor, TheLargestThatMeetsTheTargetAndPays) {
  // ITL(96) = 13.6 ms, ITL(128) = 16.8 ms; E(96) = 4.1 / 13.6 = 0.30.
  const Advice advice = BatchingConfigurationAdvisor({.itl_target_seconds = 14e-3})
                            .advise(curve(), at(1), Bound::memory);
  EXPECT_EQ(advice.batch, 96);
  EXPECT_EQ(advice.low, 96);
  EXPECT_EQ(advice.high, 96);
  EXPECT_EQ(advice.bound, Bound::latency);
}

TEST(Advisor, EfficiencyBoundsItWithoutATarget) {
  // E(256) = 4.1 / 29.6 = 0.139, E(512) = 4.1 / 55.2 = 0.074.
  const Advice advice = BatchingConfigurationAdvisor({}).advise(curve(), at(1), Bound::memory);
  EXPECT_EQ(advice.batch, 256);
  EXPECT_EQ(advice.bound, Bound::efficiency);
}

TEST(Advisor, WhereAllMeetItTheEndOfTheCurveIsTheBound) {
  const Advice advice =
      BatchingConfigurationAdvisor({.min_efficiency = 0.01}).advise(curve(), at(1), Bound::memory);
  EXPECT_EQ(advice.batch, 512);
  EXPECT_EQ(advice.bound, Bound::memory);
}

TEST(Advisor, UncertainFiguresGiveAnInterval) {
  const Advice advice = BatchingConfigurationAdvisor({.itl_target_seconds = 14e-3})
                            .advise(curve(1.3), at(1), Bound::memory);
  EXPECT_EQ(advice.low, 64);    // 10.4 ms * 1.3 = 13.5
  EXPECT_EQ(advice.high, 128);  // 16.8 ms / 1.3 = 12.9
}

TEST(Advisor, ATargetThatNoneMeets) {
  const Advice advice = BatchingConfigurationAdvisor({.itl_target_seconds = 1e-3})
                            .advise(curve(), at(1), Bound::memory);
  EXPECT_FALSE(advice.batch);
  EXPECT_EQ(advice.bound, Bound::latency);
}

}  // namespace
}  // namespace headroom::batch
