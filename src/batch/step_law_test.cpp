#include "batch/step_law.h"

#include <gtest/gtest.h>

#include <cmath>

namespace headroom::batch {
namespace {

std::vector<LawPoint> affine(double base, double slope, const std::vector<double>& batches) {
  std::vector<LawPoint> points;
  for (const double batch : batches) points.push_back({batch, base + slope * batch});
  return points;
}

TEST(StepLaw, AnAffineServerIsFoundAgain) {
  const auto law = StepLaw::fit(affine(4e-3, 1e-4, {1, 32, 512}));
  ASSERT_TRUE(law) << law.error().to_string();
  EXPECT_NEAR(law->base_seconds(), 4e-3, 1e-12);
  EXPECT_NEAR(law->seconds_per_sequence(), 1e-4, 1e-14);
  EXPECT_NEAR(law->half_point(), 40, 1e-6);
  EXPECT_NEAR(law->seconds(100).expected, 14e-3, 1e-9);
}

TEST(StepLaw, TwoPointsByHand) {
  // Two points and a line: it goes through both, wherever they are.
  const auto law = StepLaw::fit({{1, 5e-3}, {100, 20e-3}});
  ASSERT_TRUE(law);
  EXPECT_NEAR(law->seconds_per_sequence(), 15e-3 / 99, 1e-12);
  EXPECT_NEAR(law->seconds(1).expected, 5e-3, 1e-12);
}

TEST(StepLaw, TheIntervalIsNarrowAtPointsAndWidensBeyondThem) {
  const auto law = *StepLaw::fit(affine(4e-3, 1e-4, {1, 64, 512}));
  const auto width = [&](double running) {
    const Interval at = law.seconds(running);
    return (at.high - at.low) / at.expected;
  };
  EXPECT_LT(width(64), 0.5 * width(8));
  EXPECT_LT(width(512), width(1024));
  EXPECT_LT(width(1024), width(4096));
  EXPECT_LT(width(64), 0.05);
}

TEST(StepLaw, ABentServerIsFollowedNearItsPoints) {
  std::vector<LawPoint> points = affine(4e-3, 1e-4, {1, 8, 512});
  points.push_back({64, 1.04 * (4e-3 + 64e-4)});  // 4 % above the line
  const auto law = *StepLaw::fit(points);
  EXPECT_NEAR(law.seconds(64).expected / (1.04 * (4e-3 + 64e-4)), 1, 0.01);
}

TEST(StepLaw, OneBatchOrAShrinkingStepIsRefused) {
  EXPECT_FALSE(StepLaw::fit({}));
  EXPECT_FALSE(StepLaw::fit({{8, 1e-3}}));
  EXPECT_FALSE(StepLaw::fit({{8, 1e-3}, {8, 1.1e-3}, {8.01, 1e-3}}));
  const auto shrinking = StepLaw::fit({{1, 5e-3}, {100, 4e-3}});
  ASSERT_FALSE(shrinking);
  EXPECT_EQ(shrinking.error().code, ErrorCode::bad_input);
}

TEST(StepLaw, AFlatServerIsNoError) {
  const auto law = StepLaw::fit({{1, 10.1e-3}, {2, 10.0e-3}});
  ASSERT_TRUE(law);
  EXPECT_NEAR(law->seconds(1).expected, 10.1e-3, 0.1e-3);
  EXPECT_NEAR(law->seconds(2).expected, 10.0e-3, 0.1e-3);
  EXPECT_FALSE(StepLaw::fit({{1, 10e-3}, {2, 9e-3}}));
}

TEST(StepLaw, ManyRepeatedPointsAreNoTrouble) {
  std::vector<LawPoint> points;
  for (size_t i = 0; i < 300; ++i) points.push_back({i % 2 ? 1.0 : 100.0, i % 2 ? 5e-3 : 20e-3});
  const auto law = StepLaw::fit(points);
  ASSERT_TRUE(law);
  EXPECT_TRUE(std::isfinite(law->seconds(10).high));
}

}  // namespace
}  // namespace headroom::batch
