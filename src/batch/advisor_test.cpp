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

// Beyond 32 throughput falls: whoever waits longer would have less.
TEST(Advisor, ALargerOneThatGivesLessIsNotChosen) {
  const auto point = [](int64_t batch, double rate, double itl) {
    return BatchPoint{.batch = batch,
                      .running = static_cast<double>(batch),
                      .throughput_tokens_per_second = {0.9 * rate, rate, 1.1 * rate},
                      .itl_seconds = {0.9 * itl, itl, 1.1 * itl}};
  };
  const std::vector<BatchPoint> falls{point(1, 300, 3.3e-3), point(32, 5000, 6.4e-3),
                                      point(64, 4500, 14.2e-3), point(128, 4000, 32e-3)};
  const AdvisorOptions options{.itl_target_seconds = 50e-3, .min_efficiency = 0.01};
  const Advice advice =
      BatchingConfigurationAdvisor(options).advise(falls, falls.front(), Bound::measured);
  EXPECT_EQ(advice.batch, 32);
  EXPECT_EQ(advice.low, 32);
  EXPECT_EQ(advice.high, 32);
  EXPECT_EQ(advice.bound, Bound::throughput);
  // One that recovers is chosen again.
  std::vector<BatchPoint> recovers = falls;
  recovers.push_back(point(256, 5001, 45e-3));
  const Advice later =
      BatchingConfigurationAdvisor(options).advise(recovers, falls.front(), Bound::measured);
  EXPECT_EQ(later.batch, 256);
  EXPECT_EQ(later.bound, Bound::measured);
}

TEST(Advisor, ADipBehindWhichThroughputRisesIsNoise) {
  std::vector<BatchPoint> flat;
  for (const auto& [batch, rate] : {std::pair{1, 636.0}, {4, 589.0}, {8, 600.0}, {32, 737.0}}) {
    BatchPoint point{.batch = batch, .running = static_cast<double>(batch)};
    point.throughput_tokens_per_second = {rate, rate, rate};
    point.itl_seconds = product({1, 1, 1}, 1.6e-3 * batch);
    flat.push_back(point);
  }
  const BatchingConfigurationAdvisor advisor({.itl_target_seconds = 20e-3});
  EXPECT_EQ(advisor.advise(flat, flat.front(), Bound::measured).batch, 8);
  flat.back().throughput_tokens_per_second = {630, 630, 630};
  EXPECT_EQ(advisor.advise(flat, flat.front(), Bound::measured).batch, 1);
}

TEST(Advisor, TheEngineMayTakeNoMore) {
  const Advice advice = BatchingConfigurationAdvisor({.min_efficiency = 0.01, .most_batch = 100})
                            .advise(curve(), at(1), Bound::memory);
  EXPECT_EQ(advice.batch, 96);
  EXPECT_EQ(advice.high, 96);
  EXPECT_EQ(advice.bound, Bound::engine);
}

TEST(Advisor, ATargetThatNoneMeets) {
  const Advice advice = BatchingConfigurationAdvisor({.itl_target_seconds = 1e-3})
                            .advise(curve(), at(1), Bound::memory);
  EXPECT_FALSE(advice.batch);
  EXPECT_EQ(advice.bound, Bound::latency);
}

}  // namespace
}  // namespace headroom::batch
