#include "batch/watch_base.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "batch/step_law.h"

namespace headroom::batch {
namespace {

// Linear between the knots, and beyond them along the last two.
double on_lines(const std::vector<std::pair<double, double>>& knots, double x) {
  if (knots.size() == 1) return knots.front().second;
  auto above = std::lower_bound(knots.begin(), knots.end(), x,
                                [](const auto& knot, double at) { return knot.first < at; });
  if (above == knots.begin()) ++above;
  if (above == knots.end()) --above;
  const auto below = std::prev(above);
  const double part = (x - below->first) / (above->first - below->first);
  return below->second + part * (above->second - below->second);
}

}  // namespace

Result<StepBase> base_of_points(const std::vector<formats::ServingPoint>& points,
                                const std::string& file) {
  std::vector<LawPoint> seen;
  int64_t most = 1;
  for (const formats::ServingPoint& point : points) {
    seen.push_back({point.running_mean.value_or(static_cast<double>(point.batch)),
                    point.itl_seconds, point.itl_error.value_or(0)});
    most = std::max(most, point.batch);
  }
  auto fitted = StepLaw::fit(seen);
  if (!fitted) {
    Error error = std::move(fitted).error();
    error.where = file;
    return error;
  }
  const auto law = std::make_shared<const StepLaw>(*std::move(fitted));
  StepBase base;
  base.seconds = [law](double in_flight) { return law->seconds(in_flight).expected; };
  base.base_error_seconds = law->base_error();
  base.most_batch = most;
  base.provenance = Provenance::measured;
  base.source = file;
  return base;
}

Result<StepBase> base_of_prediction(const PredictedCurve& curve, const std::string& source) {
  constexpr double kNinetyPercent = 1.645;
  const std::vector<int64_t> candidates = curve.candidates();
  HEADROOM_ASSIGN(const BatchPoint one, curve.at(1));
  std::vector<std::pair<double, double>> knots{{1.0, one.itl_seconds.expected}};
  for (const int64_t batch : candidates) {
    if (batch == 1) continue;
    HEADROOM_ASSIGN(const BatchPoint point, curve.at(batch));
    knots.emplace_back(static_cast<double>(batch), point.itl_seconds.expected);
  }
  StepBase base;
  base.base_error_seconds = (one.itl_seconds.high - one.itl_seconds.low) / (2 * kNinetyPercent);
  base.most_batch = candidates.empty() ? 1 : candidates.back();
  base.seconds = [knots = std::move(knots)](double in_flight) {
    return on_lines(knots, in_flight);
  };
  base.provenance = Provenance::extrapolated;
  base.source = source;
  return base;
}

void LineLearner::add(double in_flight, double itl_seconds) {
  constexpr double kBinsPerDoubling = 16;
  constexpr double kRemembered = 200;  // slices of a bin: older ones fade
  Bin& bin = bins_[static_cast<int>(std::floor(kBinsPerDoubling * std::log2(in_flight)))];
  if (bin.count >= kRemembered) {
    bin.squares *= (kRemembered - 1) / bin.count;
    bin.count = kRemembered - 1;
  }
  bin.count += 1;
  bin.in_flight += (in_flight - bin.in_flight) / bin.count;
  const double off = itl_seconds - bin.seconds;
  bin.seconds += off / bin.count;
  bin.squares += off * (itl_seconds - bin.seconds);
}

double LineLearner::spread() const {
  if (bins_.empty()) return 1;
  return bins_.rbegin()->second.in_flight / bins_.begin()->second.in_flight;
}

std::optional<StepBase> LineLearner::base() const {
  constexpr double kLeastSpread = 2;
  constexpr double kLeastNoise =
      0.03;  // of a mean: what is in flight wanders, for all of a bin alike
  constexpr double kMostError = 0.25;  // of the intercept
  constexpr size_t kLeastBins = 3;
  if (bins_.size() < kLeastBins || spread() < kLeastSpread) return std::nullopt;
  double aa = 0, ab = 0, bb = 0, ay = 0, by = 0;
  for (const auto& [place, bin] : bins_) {
    const double scatter = bin.count > 1 ? bin.squares / (bin.count - 1) : 0;
    const double floor = kLeastNoise * bin.seconds;
    const double weight = 1 / (scatter / bin.count + floor * floor);
    aa += weight;
    ab += weight * bin.in_flight;
    bb += weight * bin.in_flight * bin.in_flight;
    ay += weight * bin.seconds;
    by += weight * bin.in_flight * bin.seconds;
  }
  const double determinant = aa * bb - ab * ab;
  if (!(determinant > 0)) return std::nullopt;
  const double a = (ay * bb - by * ab) / determinant;
  const double b = (by * aa - ay * ab) / determinant;
  double misfit = 0;  // of the bins about the line, in their own errors
  double most = 1;
  for (const auto& [place, bin] : bins_) {
    const double scatter = bin.count > 1 ? bin.squares / (bin.count - 1) : 0;
    const double floor = kLeastNoise * bin.seconds;
    const double off = bin.seconds - a - b * bin.in_flight;
    misfit += off * off / (scatter / bin.count + floor * floor);
    most = std::max(most, bin.in_flight);
  }
  misfit = std::max(1.0, misfit / static_cast<double>(bins_.size() - 2));
  const double error = std::sqrt(misfit * bb / determinant);
  if (!(a > 0) || !(b > 0) || !(error < kMostError * a)) return std::nullopt;
  StepBase base;
  base.seconds = [a, b](double in_flight) { return a + b * in_flight; };
  base.base_error_seconds = error;
  base.provenance = Provenance::calibrated;
  base.source = "the traffic";
  // Twice what was seen, in the usual limits: beyond that a line says little.
  base.most_batch = std::clamp<int64_t>(std::llround(2 * most), 2, 65536);
  return base;
}

}  // namespace headroom::batch
