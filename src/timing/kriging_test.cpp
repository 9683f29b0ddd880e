#include "timing/kriging.h"

#include <gtest/gtest.h>

#include <cmath>

namespace headroom::timing {
namespace {

Correction unit_correction() {
  return {.features = {Feature::k},
          .center = {0},
          .scale = {1},
          .offset_sd = 0.3,
          .local_sd = 0.2,
          .noise_sd = 0.05};
}

double at(const std::vector<Coordinates>& points, const std::vector<double>& residuals, double x) {
  const Correction correction = unit_correction();
  const std::vector<double> weights = kriging_weights(correction, points, residuals);
  return expected_residual(correction, points, weights, {x});
}

TEST(Kriging, OnePointByHand) {
  // covariance 0.09 + 0.04 at the point, 0.0025 of noise: 0.13 / 0.1325 of what was seen.
  EXPECT_NEAR(at({{0}}, {0.1}, 0), 0.1 * 0.13 / 0.1325, 1e-12);
  // Far away only the device's offset is left.
  EXPECT_NEAR(at({{0}}, {0.1}, 50), 0.1 * 0.09 / 0.1325, 1e-12);
}

TEST(Kriging, SolvesItsEquations) {
  const std::vector<Coordinates> points = {{0}, {0.3}, {1}, {4}};
  const std::vector<double> residuals = {0.1, -0.2, 0.3, 0.05};
  const Correction correction = unit_correction();
  const std::vector<double> weights = kriging_weights(correction, points, residuals);
  for (size_t i = 0; i < points.size(); ++i) {
    const double sum = expected_residual(correction, points, weights, points[i]);
    EXPECT_NEAR(sum + 0.0025 * weights[i], residuals[i], 1e-12);
  }
}

TEST(Kriging, ManyEqualPointsAreNoTrouble) {
  const std::vector<Coordinates> points(200, Coordinates{1.0});
  const std::vector<double> residuals(200, 0.4);
  EXPECT_NEAR(at(points, residuals, 1.0), 0.4, 1e-3);
}

TEST(Kriging, BeyondThePointsTheirBoxHolds) {
  const Box box = box_of({{1, 5}, {3, 2}, {2, 4}});
  EXPECT_EQ(box.low, (Coordinates{1, 2}));
  EXPECT_EQ(box.high, (Coordinates{3, 5}));
  EXPECT_EQ(held_within(box, {9, 3}), (Coordinates{3, 3}));
  EXPECT_EQ(held_within(box, {0, 9}), (Coordinates{1, 5}));
  EXPECT_EQ(held_within(Box{}, {7}), (Coordinates{7}));
}

TEST(Kriging, PlacesDifferTheMoreTheFurtherTheyAreApart) {
  Correction correction;
  correction.offset_sd = 5;
  correction.local_sd = 0.5;
  EXPECT_EQ(variance_between(correction, {1, 2}, {1, 2}), 0);
  // Half of a normal distribution's height is 1.1774 deviations away.
  EXPECT_NEAR(variance_between(correction, {1, 2}, {2.1774, 2}), 0.25, 1e-4);
  EXPECT_NEAR(variance_between(correction, {1, 2}, {1, 99}), 0.5, 1e-12);
}

TEST(Kriging, ErrorsOfPointsLeftOutAreThoseOfLeavingThemOut) {
  Correction correction;
  correction.offset_sd = 0.3;
  correction.local_sd = 0.4;
  correction.noise_sd = 0.05;
  std::vector<Coordinates> points;
  std::vector<double> residuals;
  for (int i = 0; i < 9; ++i) {
    points.push_back({0.7 * i, 0.3 * (i % 4)});
    residuals.push_back(std::sin(1.1 * i));
  }
  const std::vector<double> errors = left_out_errors(correction, points, residuals);
  ASSERT_EQ(errors.size(), points.size());
  for (size_t i = 0; i < points.size(); ++i) {
    std::vector<Coordinates> rest = points;
    std::vector<double> known = residuals;
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
    known.erase(known.begin() + static_cast<std::ptrdiff_t>(i));
    const std::vector<double> weights = kriging_weights(correction, rest, known);
    const double expected = expected_residual(correction, rest, weights, points[i]);
    EXPECT_NEAR(errors[i], residuals[i] - expected, 1e-9);
  }
}

}  // namespace
}  // namespace headroom::timing
