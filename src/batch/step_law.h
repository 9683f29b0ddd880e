// StepLaw: the time of a decode step by how many sequences are in it, t(n) = a + b n, with what
// measured points say beside the line.
//
// A step reads the weights once (a) and each sequence's cache (b): at a fixed context it is affine
// in the batch. Servers bend a little from it, alike for neighbouring batches, so the law is
// universal kriging: a line by generalised least squares of relative errors, and a residual that is
// correlated over log2(n). At a measured batch it gives what was measured, between points the line
// bent by its neighbours, and beyond them the line with an interval that widens.
//
// Amplitude, reach and noise of the residual were fitted by maximum likelihood on other people's
// servers (78 curves of two dense models, tools/batch/fit_law.py) and widened until their own 90 %
// intervals held; none of them is the memory-gap paper's (docs/measurements/2026-11-21-batch). Cost
// O(points^3) to fit, O(points^2) a prediction. Thread-safe once made.
#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"

namespace headroom::batch {

struct LawPoint {
  double running = 1;  // sequences in flight
  double seconds = 0;  // of a step
  double error = 0;    // relative standard error of it, where it is known; kNoise is the least
};

// 90 % interval.
struct Interval {
  double low = 0;
  double expected = 0;
  double high = 0;
};
[[nodiscard]] constexpr Interval product(const Interval& a, double b) {
  return {a.low * b, a.expected * b, a.high * b};
}
// Of what goes one way: low with low, high with high.
[[nodiscard]] constexpr Interval product(const Interval& a, const Interval& b) {
  return {a.low * b.low, a.expected * b.expected, a.high * b.high};
}

class StepLaw {
 public:
  static constexpr double kAmplitude = 0.037;  // of a residual, relative
  static constexpr double kReach = 2;          // in doublings of the batch
  static constexpr double kNoise = 0.006;      // of a measurement, relative
  static constexpr size_t kMostPoints = 1000;

  // An Error with fewer than two different batches, or where steps get shorter as the batch grows.
  // REQUIRES: running and seconds are positive and finite; kMostPoints at most.
  static Result<StepLaw> fit(const std::vector<LawPoint>& points);

  // REQUIRES: running > 0.
  [[nodiscard]] Interval seconds(double running) const;
  [[nodiscard]] double base_seconds() const { return base_; }           // a
  [[nodiscard]] double base_error() const;                              // standard, of a
  [[nodiscard]] double seconds_per_sequence() const { return slope_; }  // b
  // The half point a / b: half of the throughput that an endless batch would have.
  [[nodiscard]] double half_point() const { return slope_ > 0 ? base_ / slope_ : 0; }

 private:
  std::vector<double> place_;      // log2 of each point's batch
  std::vector<double> columns_;    // 1 / seconds and n / seconds of each point
  std::vector<double> factor_;     // Cholesky factor of the points' covariance, row by row
  std::vector<double> residuals_;  // solved against it
  double base_ = 0;
  double slope_ = 0;
  double normal_[3] = {0, 0, 0};  // of the line's equations: aa, ab, bb
};

}  // namespace headroom::batch
