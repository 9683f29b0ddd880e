// Kriging: what points of one device say about its other shapes.
//
// The residual log(measured / predicted) is taken for a Gaussian process over a law's features:
// covariance offset_sd^2 + local_sd^2 exp(-|x - y|^2 / 2), noise_sd^2 more on the diagonal. The
// expected residual at x is the covariances of x with the points, times `weights`.
// (Rasmussen and Williams, Gaussian Processes for Machine Learning, section 2.2.)
// O(n^3) once for n points, O(n) a prediction. Pure; thread-safe.
#pragma once

#include <vector>

#include "timing/law.h"

namespace headroom::timing {

using Coordinates = std::vector<double>;

[[nodiscard]] Coordinates coordinates_of(const Correction& correction, const Features& features);

// The box that points span. Beyond it the process says what its lengths make it say: who asks there
// takes the nearest place within.
struct Box {
  Coordinates low;
  Coordinates high;
};
[[nodiscard]] Box box_of(const std::vector<Coordinates>& points);
[[nodiscard]] Coordinates held_within(const Box& box, Coordinates at);
// Variance of what the process at one place differs by from what it is at the other, as a logarithm
// of times: 0 at the same place, 2 local_sd^2 (the offset is both places') far from it.
[[nodiscard]] double variance_between(const Correction& correction, const Coordinates& a,
                                      const Coordinates& b);

// REQUIRES: as many residuals as points, and noise_sd > 0.
[[nodiscard]] std::vector<double> kriging_weights(const Correction& correction,
                                                  const std::vector<Coordinates>& points,
                                                  const std::vector<double>& residuals);

[[nodiscard]] double expected_residual(const Correction& correction,
                                       const std::vector<Coordinates>& points,
                                       const std::vector<double>& weights, const Coordinates& at);

// The same, but no further off than a point may be: points that are close and contradict each other
// make a slope that reaches any height beside them.
[[nodiscard]] double bounded_residual(const Correction& correction,
                                      const std::vector<Coordinates>& points,
                                      const std::vector<double>& weights, const Coordinates& at,
                                      double most);

// Of each point: its residual, less what the other points say of it. O(n^3) for all of them.
[[nodiscard]] std::vector<double> left_out_errors(const Correction& correction,
                                                  const std::vector<Coordinates>& points,
                                                  const std::vector<double>& residuals);

}  // namespace headroom::timing
