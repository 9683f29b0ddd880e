#include "serving/load_tally.h"

#include <gtest/gtest.h>

#include <random>

namespace headroom::serving {
namespace {

// `streams` in lockstep, steps of 40 ms that scatter by `noise`; the errors after ten seconds.
LoadTally::Errors lockstep(int streams, double noise) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  LoadTally tally;
  for (double at = 0; at < 10;) {
    const double step = 0.04 * (1 + noise * normal(random));
    at += step;
    for (int i = 0; i < streams; ++i) tally.add(at, step);
  }
  return tally.errors(10);
}

TEST(LoadTally, StepsThatAreAlikeHaveNoError) {
  const LoadTally::Errors errors = lockstep(8, 0);
  EXPECT_LT(errors.gap, 1e-9);
  EXPECT_LT(errors.throughput, 1e-9);
}

TEST(LoadTally, TheErrorIsThatOfTheMean) {
  // 250 steps that scatter by 10 %: 0.63 %.
  const LoadTally::Errors errors = lockstep(8, 0.1);
  EXPECT_GT(errors.gap, 0.003);
  EXPECT_LT(errors.gap, 0.012);
  EXPECT_NEAR(errors.throughput, errors.gap, 0.002);
}

TEST(LoadTally, NothingIsKnownOfAnEmptyWindow) {
  EXPECT_EQ(LoadTally().errors(10).gap, 1);
  EXPECT_EQ(LoadTally().errors(0).throughput, 1);
  LoadTally tally;
  tally.add(-1, 0.1);   // before the window
  tally.add(1e9, 0.1);  // beyond any
  EXPECT_EQ(tally.errors(10).gap, 1);
}

}  // namespace
}  // namespace headroom::serving
