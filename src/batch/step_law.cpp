#include "batch/step_law.h"

#include <algorithm>
#include <cmath>

namespace headroom::batch {
namespace {

constexpr double kNinetyPercent = 1.645;  // standard deviations on either side
// Relative to a step: so much may one seem to get shorter, over all batches, by what points
// scatter.
constexpr double kFlat = 0.05;
constexpr double kFlatErrors = 3;  // or so many of their standard errors

double covariance(double place, double other) {
  return StepLaw::kAmplitude * StepLaw::kAmplitude *
         std::exp(-std::abs(place - other) / StepLaw::kReach);
}

// In place: the lower factor of a positive definite matrix.
void factorise(std::vector<double>& matrix, size_t size) {
  for (size_t row = 0; row < size; ++row) {
    for (size_t column = 0; column <= row; ++column) {
      double sum = matrix[row * size + column];
      for (size_t k = 0; k < column; ++k) {
        sum -= matrix[row * size + k] * matrix[column * size + k];
      }
      matrix[row * size + column] =
          row == column ? std::sqrt(sum) : sum / matrix[column * size + column];
    }
  }
}

// L^-1 x: what turns a product with the inverse covariance into a plain one.
std::vector<double> whitened(const std::vector<double>& factor, std::vector<double> x) {
  const size_t size = x.size();
  for (size_t row = 0; row < size; ++row) {
    for (size_t k = 0; k < row; ++k) x[row] -= factor[row * size + k] * x[k];
    x[row] /= factor[row * size + row];
  }
  return x;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

bool all_alike(const std::vector<LawPoint>& points) {
  const auto [least, most] =
      std::minmax_element(points.begin(), points.end(),
                          [](const auto& a, const auto& b) { return a.running < b.running; });
  return !(most->running > least->running * 1.01);
}

}  // namespace

// The line c minimises |L^-1 (1 - F c)|^2, F's rows being (1, n) / seconds: relative errors,
// weighed by how alike neighbours err. A prediction adds k' R^-1 (1 - F c), and its variance is
// that of the residual less what the points tell of it, more what the line's own uncertainty adds.
Result<StepLaw> StepLaw::fit(const std::vector<LawPoint>& points) {
  HEADROOM_CHECK(points.size() <= kMostPoints, "a bounded number of points");
  if (points.size() < 2 || all_alike(points)) {
    return Error{ErrorCode::bad_input,
                 "one batch says nothing of others",
                 {},
                 "give points at two batches at least: the smallest and the largest say most"};
  }
  const size_t size = points.size();
  StepLaw law;
  std::vector<double> ones(size, 1.0);
  std::vector<double> inverse(size);
  std::vector<double> grown(size);
  law.factor_.resize(size * size);
  for (size_t i = 0; i < size; ++i) {
    HEADROOM_CHECK(points[i].running > 0 && points[i].seconds > 0, "points are positive");
    HEADROOM_CHECK(points[i].error >= 0, "an error is no less than none");
    law.place_.push_back(std::log2(points[i].running));
    inverse[i] = 1 / points[i].seconds;
    grown[i] = points[i].running / points[i].seconds;
  }
  for (size_t row = 0; row < size; ++row) {
    for (size_t column = 0; column < size; ++column) {
      law.factor_[row * size + column] = covariance(law.place_[row], law.place_[column]);
    }
    const double noise = std::max(kNoise, points[row].error);
    law.factor_[row * size + row] += noise * noise;
  }
  factorise(law.factor_, size);
  const std::vector<double> a = whitened(law.factor_, inverse);
  const std::vector<double> b = whitened(law.factor_, grown);
  const std::vector<double> y = whitened(law.factor_, ones);
  const double aa = dot(a, a), ab = dot(a, b), bb = dot(b, b), ay = dot(a, y), by = dot(b, y);
  const double determinant = aa * bb - ab * ab;
  law.base_ = (ay * bb - by * ab) / determinant;
  law.slope_ = (by * aa - ay * ab) / determinant;
  double most = 0;
  double scatter = kFlat;
  for (const LawPoint& point : points) {
    most = std::max(most, point.running);
    scatter = std::max(scatter, kFlatErrors * point.error);
  }
  // A server whose steps hardly grow over these batches: what falls is noise, and the law is flat.
  const bool is_flat = law.slope_ <= 0 && -law.slope_ * most <= scatter * law.base_;
  if (is_flat) {
    law.base_ = ay / aa;
    law.slope_ = 1e-6 * law.base_ / most;
  }
  if (!std::isfinite(law.base_) || !std::isfinite(law.slope_) || !(law.slope_ > 0)) {
    return Error{ErrorCode::bad_input,
                 "steps do not get longer with the batch",
                 {},
                 "points of one server, at a fixed setting but for its batch limit"};
  }
  law.normal_[0] = aa;
  law.normal_[1] = ab;
  law.normal_[2] = bb;
  law.columns_ = a;
  law.columns_.insert(law.columns_.end(), b.begin(), b.end());
  law.residuals_ = y;
  for (size_t i = 0; i < size; ++i) law.residuals_[i] -= law.base_ * a[i] + law.slope_ * b[i];
  return law;
}

double StepLaw::base_error() const {
  const double determinant = normal_[0] * normal_[2] - normal_[1] * normal_[1];
  return std::sqrt(std::max(0.0, normal_[2] / determinant));
}

Interval StepLaw::seconds(double running) const {
  HEADROOM_CHECK(running > 0, "sequences in flight");
  const size_t size = place_.size();
  const double place = std::log2(running);
  std::vector<double> near(size);
  for (size_t i = 0; i < size; ++i) near[i] = covariance(place, place_[i]);
  const std::vector<double> k = whitened(factor_, std::move(near));
  // A line that is at 0 or below before the first sequence is held at its own slope there.
  const double line = std::max(base_ + slope_ * running, 1e-3 * slope_ * running);
  double u = 1 / line;
  double v = running / line;
  for (size_t i = 0; i < size; ++i) {
    u -= columns_[i] * k[i];
    v -= columns_[size + i] * k[i];
  }
  const double determinant = normal_[0] * normal_[2] - normal_[1] * normal_[1];
  const double of_line =
      (u * u * normal_[2] - 2 * u * v * normal_[1] + v * v * normal_[0]) / determinant;
  const double variance =
      kAmplitude * kAmplitude + kNoise * kNoise - dot(k, k) + std::max(0.0, of_line);
  const double spread = std::exp(kNinetyPercent * std::sqrt(std::max(variance, 0.0)));
  const double expected = line * std::max(0.1, 1 + dot(k, residuals_));
  return {expected / spread, expected, expected * spread};
}

}  // namespace headroom::batch
