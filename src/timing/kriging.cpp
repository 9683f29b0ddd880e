#include "timing/kriging.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace headroom::timing {

namespace {

// 1 at the same place, 0 far from it.
double likeness(const Coordinates& a, const Coordinates& b) {
  double square = 0;
  for (size_t i = 0; i < a.size(); ++i) square += (a[i] - b[i]) * (a[i] - b[i]);
  return std::exp(-square / 2);
}

double covariance(const Correction& correction, const Coordinates& a, const Coordinates& b) {
  return correction.offset_sd * correction.offset_sd +
         correction.local_sd * correction.local_sd * likeness(a, b);
}

// Cholesky's factor of the covariance of the points, row by row below the diagonal.
std::vector<double> factor(const Correction& correction, const std::vector<Coordinates>& points) {
  const size_t n = points.size();
  std::vector<double> lower(n * n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = covariance(correction, points[i], points[j]);
      if (i == j) sum += correction.noise_sd * correction.noise_sd;
      for (size_t k = 0; k < j; ++k) sum -= lower[i * n + k] * lower[j * n + k];
      // The noise bounds the pivots from below; rounding must not take them under it.
      const double least = correction.noise_sd * correction.noise_sd / 2;
      lower[i * n + j] = i == j ? std::sqrt(std::max(sum, least)) : sum / lower[j * n + j];
    }
  }
  return lower;
}

}  // namespace

Coordinates coordinates_of(const Correction& correction, const Features& features) {
  Coordinates at;
  for (size_t i = 0; i < correction.features.size(); ++i) {
    at.push_back((features[correction.features[i]] - correction.center[i]) / correction.scale[i]);
  }
  return at;
}

Box box_of(const std::vector<Coordinates>& points) {
  if (points.empty()) return {};
  Box box{points.front(), points.front()};
  for (const Coordinates& point : points) {
    for (size_t i = 0; i < point.size(); ++i) {
      box.low[i] = std::min(box.low[i], point[i]);
      box.high[i] = std::max(box.high[i], point[i]);
    }
  }
  return box;
}

Coordinates held_within(const Box& box, Coordinates at) {
  for (size_t i = 0; i < at.size() && i < box.low.size(); ++i) {
    at[i] = std::clamp(at[i], box.low[i], box.high[i]);
  }
  return at;
}

double variance_between(const Correction& correction, const Coordinates& a, const Coordinates& b) {
  return 2 * correction.local_sd * correction.local_sd * (1 - likeness(a, b));
}

namespace {

// lower * lower^T * weights = residuals.
std::vector<double> solved(const std::vector<double>& lower, std::vector<double> weights) {
  const size_t n = weights.size();
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) weights[i] -= lower[i * n + k] * weights[k];
    weights[i] /= lower[i * n + i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) weights[i] -= lower[k * n + i] * weights[k];
    weights[i] /= lower[i * n + i];
  }
  return weights;
}

// The diagonal of (lower * lower^T)^-1: the columns of lower^-1, squared.
std::vector<double> inverse_diagonal(const std::vector<double>& lower, size_t n) {
  std::vector<double> diagonal(n);
  std::vector<double> column(n);
  for (size_t j = 0; j < n; ++j) {
    for (size_t i = j; i < n; ++i) {
      double sum = i == j ? 1 : 0;
      for (size_t k = j; k < i; ++k) sum -= lower[i * n + k] * column[k];
      column[i] = sum / lower[i * n + i];
      diagonal[j] += column[i] * column[i];
    }
  }
  return diagonal;
}

}  // namespace

std::vector<double> kriging_weights(const Correction& correction,
                                    const std::vector<Coordinates>& points,
                                    const std::vector<double>& residuals) {
  HEADROOM_CHECK(points.size() == residuals.size(), "a residual for each point");
  return solved(factor(correction, points), residuals);
}

// With K the covariance of the points, leaving out point i leaves an error of (K^-1 y)_i /
// (K^-1)_ii (Rasmussen and Williams, section 5.4.2).
std::vector<double> left_out_errors(const Correction& correction,
                                    const std::vector<Coordinates>& points,
                                    const std::vector<double>& residuals) {
  HEADROOM_CHECK(points.size() == residuals.size(), "a residual for each point");
  const std::vector<double> lower = factor(correction, points);
  std::vector<double> errors = solved(lower, residuals);
  const std::vector<double> diagonal = inverse_diagonal(lower, points.size());
  for (size_t i = 0; i < errors.size(); ++i) errors[i] /= diagonal[i];
  return errors;
}

double expected_residual(const Correction& correction, const std::vector<Coordinates>& points,
                         const std::vector<double>& weights, const Coordinates& at) {
  double sum = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    sum += covariance(correction, at, points[i]) * weights[i];
  }
  return sum;
}

double bounded_residual(const Correction& correction, const std::vector<Coordinates>& points,
                        const std::vector<double>& weights, const Coordinates& at, double most) {
  return std::clamp(expected_residual(correction, points, weights, at), -most, most);
}

}  // namespace headroom::timing
