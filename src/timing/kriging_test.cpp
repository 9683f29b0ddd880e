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

}  // namespace
}  // namespace headroom::timing
