#include "timing/device_law.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>

#include "base/median.h"
#include "timing/kriging.h"
#include "timing/timing_model.h"

namespace headroom::timing {

namespace {

constexpr size_t kFolds = 5;
constexpr double kLevel = 0.90;
constexpr double kLeastScale = 1e-3;   // of a feature that is alike in all points
constexpr double kLeastSpread = 0.05;  // of residuals: 5 %
constexpr double kMostStartSeconds = 1;
constexpr double kMostUncertainty = 0.5;  // of a median
constexpr double kMostHalfWidth = 10;     // as law files bound it
constexpr double kMostDeviation = 10;     // so too
constexpr std::array<double, 5> kLengths{0.25, 0.5, 1, 2,
                                         4};  // in standard deviations of a feature
constexpr int kSweeps = 2;
constexpr std::array<double, 3> kNoises{0.03, 0.1, 0.3};

// The fewest that tell shapes of the class apart.
std::vector<Feature> features_for(OperatorClass kind) {
  if (has_feature(kind, Feature::k)) return {Feature::m, Feature::n, Feature::k};
  if (has_feature(kind, Feature::context)) {
    std::vector<Feature> features{Feature::traffic_us, Feature::context, Feature::sharing,
                                  Feature::head_dim};
    if (has_feature(kind, Feature::density)) features.push_back(Feature::density);
    return features;
  }
  if (has_feature(kind, Feature::message)) return {Feature::message, Feature::group};
  return {Feature::traffic_us, Feature::width};
}

// Points as the fit sees them: features, and log(measured / law).
struct Sample {
  std::vector<Features> features;
  std::vector<double> residuals;
  double noise_log = 0;  // of a point, as far as its rounds tell

  [[nodiscard]] size_t size() const { return residuals.size(); }
  [[nodiscard]] Sample without(const std::function<bool(size_t)>& is_out) const {
    Sample rest;
    rest.noise_log = noise_log;
    for (size_t i = 0; i < size(); ++i) {
      if (is_out(i)) continue;
      rest.features.push_back(features[i]);
      rest.residuals.push_back(residuals[i]);
    }
    return rest;
  }
};

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double deviation_of(const std::vector<double>& values) {
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

// Below which a new value lies with a probability of kLevel, by n values alike (the quantile of
// split conformal prediction); the largest, where so few say no more.
double held_at_level(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<size_t>(std::ceil(kLevel * static_cast<double>(values.size() + 1)));
  return values[std::min(rank, values.size()) - 1];
}

// The standard deviation of a point that is the mean of two rounds: half of what these differ by.
// By the median (of a normal distribution 0.6745 deviations), since some rounds are disturbed.
double noise_log_of(const std::vector<MeasuredPoint>& points) {
  std::vector<double> drifts;
  for (const MeasuredPoint& point : points) {
    if (point.drift_log > 0) drifts.push_back(point.drift_log);
  }
  return drifts.empty() ? 0 : median(std::move(drifts)) / 0.6745 / 2;
}

// With a length for each feature, in standard deviations of it.
Correction correction_of(const Sample& sample, OperatorClass kind,
                         const std::vector<double>& lengths, double noise) {
  Correction correction;
  correction.features = features_for(kind);
  for (size_t i = 0; i < correction.features.size(); ++i) {
    std::vector<double> values;
    for (const Features& features : sample.features) {
      values.push_back(features[correction.features[i]]);
    }
    correction.center.push_back(mean_of(values));
    correction.scale.push_back(lengths[i] * std::max(kLeastScale, deviation_of(values)));
  }
  const double spread = std::max(kLeastSpread, deviation_of(sample.residuals));
  correction.offset_sd = correction.local_sd = std::min(spread, kMostDeviation);
  correction.noise_sd = std::min(std::max(noise * spread, sample.noise_log), kMostDeviation);
  return correction;
}

std::vector<Coordinates> coordinates_in(const Correction& correction, const Sample& sample) {
  std::vector<Coordinates> points;
  points.reserve(sample.size());
  for (const Features& known : sample.features) points.push_back(coordinates_of(correction, known));
  return points;
}

// What the points say of another one.
double residual_at(const Correction& correction, const Sample& sample, const Features& features) {
  const std::vector<Coordinates> points = coordinates_in(correction, sample);
  const std::vector<double> weights = kriging_weights(correction, points, sample.residuals);
  return bounded_residual(correction, points, weights,
                          held_within(box_of(points), coordinates_of(correction, features)),
                          TimingModel::kMostResidual);
}

double error_left_out(const Correction& correction, const Sample& sample) {
  double sum = 0;
  for (const double error :
       left_out_errors(correction, coordinates_in(correction, sample), sample.residuals)) {
    sum += std::abs(error);
  }
  return sum / static_cast<double>(sample.size());
}

// The one with the least error on points left out one by one: first with lengths that are alike,
// then each feature's length in turn, since times may change fast along one and slowly along
// another (a product of one row is another kernel than one of two).
class BestCorrection {
 public:
  BestCorrection(const Sample& sample, OperatorClass kind) : sample_(sample), kind_(kind) {
    const size_t features = features_for(kind).size();
    for (const double length : kLengths) {
      for (const double noise : kNoises) consider(std::vector<double>(features, length), noise);
    }
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
      for (size_t i = 0; i < features; ++i) {
        for (const double length : kLengths) {
          std::vector<double> lengths = lengths_;
          lengths[i] = length;
          consider(lengths, noise_);
        }
      }
      for (const double noise : kNoises) consider(lengths_, noise);
    }
  }
  [[nodiscard]] const Correction& found() const { return best_; }

 private:
  void consider(const std::vector<double>& lengths, double noise) {
    Correction correction = correction_of(sample_, kind_, lengths, noise);
    const double error = error_left_out(correction, sample_);
    if (!best_.features.empty() && error >= least_) return;
    best_ = std::move(correction);
    least_ = error;
    lengths_ = lengths;
    noise_ = noise;
  }

  const Sample& sample_;
  OperatorClass kind_;
  Correction best_;
  double least_ = 0;
  std::vector<double> lengths_;
  double noise_ = 0;
};

Correction best_correction(const Sample& sample, OperatorClass kind) {
  return BestCorrection(sample, kind).found();
}

// Logarithms of predicted over measured, sizes apart.
struct FoldErrors {
  std::vector<double> large;
  std::vector<double> small;
};

FoldErrors errors_by_fold(const Sample& sample, OperatorClass kind) {
  FoldErrors errors;
  for (size_t fold = 0; fold < kFolds; ++fold) {
    const Sample rest = sample.without([&](size_t i) { return i % kFolds == fold; });
    const Correction correction = best_correction(rest, kind);
    for (size_t i = fold; i < sample.size(); i += kFolds) {
      const double error = residual_at(correction, rest, sample.features[i]) - sample.residuals[i];
      (sample.features[i].large ? errors.large : errors.small).push_back(error);
    }
  }
  return errors;
}

// Of one size, where there are enough of it; else of both.
HeldOutError held_out(const std::vector<double>& own, const std::vector<double>& others) {
  std::vector<double> used = own;
  if (own.size() < kLeastPointsOfALaw) used.insert(used.end(), others.begin(), others.end());
  std::vector<double> widths;
  std::vector<double> percents;
  for (const double error : used) {
    widths.push_back(std::abs(error));
    percents.push_back(100 * std::abs(std::expm1(error)));
  }
  return {.rows = static_cast<int64_t>(used.size()),
          .median_error_pct = median(percents),
          .half_width_log = std::min(kMostHalfWidth, held_at_level(widths))};
}

// The least time beyond the roofline: what a call costs that does nothing. What beats the roofline,
// as operands in a cache do, says nothing of it but that it costs no more than that whole call. 0
// where all do.
double start_of(const std::vector<MeasuredPoint>& points, const std::vector<Features>& features) {
  double start = kMostStartSeconds;
  double shortest = kMostStartSeconds;
  for (size_t i = 0; i < points.size(); ++i) {
    const double beyond = points[i].seconds - roof_seconds(features[i].roofline);
    if (beyond > 0) start = std::min(start, beyond);
    shortest = std::min(shortest, points[i].seconds);
  }
  if (start < kMostStartSeconds) start = std::min(start, shortest);
  return start < kMostStartSeconds ? start : 0;
}

Result<std::vector<Features>> all_features(const device::Device& device,
                                           const std::vector<MeasuredPoint>& points) {
  std::vector<Features> all;
  for (const MeasuredPoint& point : points) {
    HEADROOM_ASSIGN(const Features features, features_of(point.call, device));
    all.push_back(features);
  }
  return all;
}

// The law without what points say of each other: start, roofline and intercept; fills `residuals`
// of a sample that has its features.
Law plain_law(const device::Device& device, const std::vector<MeasuredPoint>& points,
              Sample& sample) {
  Law law;
  law.kind = points.front().call.kind;
  law.device = device.name;
  law.devices = {device.name};
  for (const MeasuredPoint& point : points) {
    if (point.call.flops <= 0 || std::ranges::count(law.rates, point.call.rate) > 0) continue;
    law.rates.push_back(point.call.rate);
  }
  law.start_seconds = start_of(points, sample.features);
  for (size_t i = 0; i < points.size(); ++i) {
    sample.residuals.push_back(std::log(points[i].seconds / law.seconds(sample.features[i])));
  }
  law.intercept = std::clamp(median(sample.residuals), -10.0, 10.0);
  for (double& residual : sample.residuals) residual -= law.intercept;
  sample.noise_log = noise_log_of(points);
  return law;
}

}  // namespace

Result<std::vector<MeasuredPoint>> undisturbed(const device::Device& device,
                                               std::vector<MeasuredPoint> points) {
  std::erase_if(points,
                [](const MeasuredPoint& point) { return point.uncertainty > kMostUncertainty; });
  if (points.empty()) return points;
  Sample sample;
  HEADROOM_ASSIGN(sample.features, all_features(device, points));
  plain_law(device, points, sample);
  std::vector<MeasuredPoint> kept;
  for (size_t i = 0; i < points.size(); ++i) {
    // Some way within the bound, as the law of those that are kept is another one.
    if (std::abs(sample.residuals[i]) < TimingModel::kMostResidual / 2) kept.push_back(points[i]);
  }
  return kept;
}

Result<Law> fit_device_law(const device::Device& device, const std::vector<MeasuredPoint>& points) {
  if (points.size() < kLeastPointsOfALaw || points.size() > TimingModel::kMostPoints) {
    return Error{ErrorCode::bad_input,
                 "a law needs " + std::to_string(kLeastPointsOfALaw) + " to " +
                     std::to_string(TimingModel::kMostPoints) + " points, there are " +
                     std::to_string(points.size()),
                 {},
                 {}};
  }
  Sample sample;
  HEADROOM_ASSIGN(sample.features, all_features(device, points));
  Law law = plain_law(device, points, sample);
  const FoldErrors errors = errors_by_fold(sample, law.kind);
  law.large = held_out(errors.large, errors.small);
  law.small = held_out(errors.small, errors.large);
  law.can_correct = true;
  law.correction = best_correction(sample, law.kind);
  law.correction.half_width_log_large = law.large.half_width_log;
  law.correction.half_width_log_small = law.small.half_width_log;
  return law;
}

// Two rounds differ by sqrt(2) of what one is off; means of two rounds of two runs by as much as
// one round is off.
std::optional<double> spread_log(const std::vector<MeasuredPoint>& points) {
  std::vector<double> drifts;
  for (const MeasuredPoint& point : points) {
    if (point.drift_log > 0) drifts.push_back(point.drift_log);
  }
  if (drifts.empty()) return std::nullopt;
  return held_at_level(std::move(drifts)) / std::numbers::sqrt2;
}

Result<double> roofline_error_pct(const device::Device& device,
                                  const std::vector<MeasuredPoint>& points) {
  if (points.empty()) return 0.0;
  HEADROOM_ASSIGN(const std::vector<Features> features, all_features(device, points));
  std::vector<double> errors;
  for (size_t i = 0; i < points.size(); ++i) {
    const Roofline& roof = features[i].roofline;
    const double predicted = std::max(roof.compute_seconds, roof.traffic_seconds);
    errors.push_back(100 * std::abs(predicted / points[i].seconds - 1));
  }
  return median(errors);
}

}  // namespace headroom::timing
