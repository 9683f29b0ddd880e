// Whether two runs of `bench device` on one machine agree within the spread that they state.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/median.h"
#include "bench/device.h"
#include "timing/device_law.h"

namespace headroom::bench {
namespace {

using timing::MeasuredPoint;
using timing::OperatorClass;

constexpr double kLevel = 0.90;

// A call as a word: class, type and shape.
std::string key_of(const MeasuredPoint& point) {
  text::Json json = timing::point_json(point);
  return json.find("class")->as_string() + " " + json.find("rate")->as_string() + " " +
         json.find("shape")->dump();
}

double at_level(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<size_t>(std::ceil(kLevel * static_cast<double>(values.size())));
  return values[std::max<size_t>(rank, 1) - 1];
}

std::vector<MeasuredPoint> points_of(const timing::Calibration& calibration, OperatorClass kind) {
  std::vector<MeasuredPoint> points;
  std::copy_if(calibration.points.begin(), calibration.points.end(), std::back_inserter(points),
               [&](const MeasuredPoint& point) { return point.call.kind == kind; });
  return points;
}

ClassAgreement agreement_of(OperatorClass kind, const std::vector<MeasuredPoint>& earlier,
                            const std::vector<MeasuredPoint>& later) {
  std::map<std::string, double> before;
  for (const MeasuredPoint& point : earlier) before.emplace(key_of(point), point.seconds);
  ClassAgreement found;
  found.kind = kind;
  // Each run's own spread is of two runs like it; of these two it is between them.
  const double stated =
      std::hypot(timing::spread_log(earlier), timing::spread_log(later)) / std::sqrt(2.0);
  found.stated_pct = 100 * std::expm1(stated);
  std::vector<double> ratios;
  std::vector<double> sizes;
  for (const MeasuredPoint& point : later) {
    const auto same = before.find(key_of(point));
    if (same == before.end()) continue;
    ratios.push_back(std::log(point.seconds / same->second));
    sizes.push_back(std::abs(ratios.back()));
    ++found.points;
    if (sizes.back() <= stated) ++found.within;
  }
  if (found.points == 0) return found;
  found.differ_90_pct = 100 * std::expm1(at_level(sizes));
  found.median_ratio_pct = 100 * std::expm1(median(ratios));
  return found;
}

}  // namespace

bool agrees(const Agreement& agreement) {
  constexpr double kLeastShare = 0.85;
  return static_cast<double>(agreement.within) >=
         kLeastShare * static_cast<double>(agreement.points);
}

Result<Agreement> agreement(const timing::Calibration& earlier, const timing::Calibration& later) {
  const timing::Machine& a = earlier.machine;
  const timing::Machine& b = later.machine;
  if (a.product != b.product || a.kind != b.kind || a.units != b.units) {
    return Error{ErrorCode::usage,
                 "the earlier run was on another machine, or with another number of threads: " +
                     a.product + ", " + std::to_string(a.units),
                 {},
                 {}};
  }
  Agreement all;
  for (size_t i = 0; i < timing::kOperatorClasses; ++i) {
    const auto kind = static_cast<OperatorClass>(i);
    const ClassAgreement found =
        agreement_of(kind, points_of(earlier, kind), points_of(later, kind));
    if (found.points == 0) continue;
    all.points += found.points;
    all.within += found.within;
    all.classes.push_back(found);
  }
  if (all.points == 0) {
    return Error{ErrorCode::bad_input,
                 "no point was measured in both runs",
                 {},
                 "runs of the same --seconds on the same machine measure the same shapes"};
  }
  return all;
}

}  // namespace headroom::bench
