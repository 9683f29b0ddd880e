// Whether two runs of `bench device` on one machine agree within the spread that they state.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/median.h"
#include "bench/device.h"
#include "timing/device_law.h"
#include "timing/timing_model.h"

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
  const auto a = timing::spread_log(earlier);
  const auto b = timing::spread_log(later);
  const double stated = a && b ? std::hypot(*a, *b) / std::sqrt(2.0) : 0;
  if (a && b) found.stated_pct = 100 * std::expm1(stated);
  std::vector<double> ratios;
  std::vector<double> sizes;
  for (const MeasuredPoint& point : later) {
    const auto same = before.find(key_of(point));
    if (same == before.end()) continue;
    ratios.push_back(std::log(point.seconds / same->second));
    sizes.push_back(std::abs(ratios.back()));
    ++found.points;
    if (found.stated_pct && sizes.back() <= stated) ++found.within;
  }
  if (found.points == 0) return found;
  found.differ_90_pct = 100 * std::expm1(at_level(sizes));
  found.median_ratio_pct = 100 * std::expm1(median(ratios));
  return found;
}

// What the earlier run's laws say of points that it does not hold.
class Unseen {
 public:
  static Result<Unseen> make(const timing::Calibration& earlier,
                             device::DeviceCatalogue catalogue) {
    Unseen unseen;
    HEADROOM_ASSIGN(unseen.device_, timing::add_device(earlier, catalogue));
    HEADROOM_TRY(timing::add_laws(earlier, unseen.device_, unseen.model_));
    for (const MeasuredPoint& point : earlier.points) unseen.seen_.insert(key_of(point));
    for (const timing::Law& law : earlier.laws.laws) unseen.has_law_.insert(law.kind);
    return unseen;
  }
  // Points that are not predicted are left out: the earlier run has no law of the class.
  void add(const MeasuredPoint& point) {
    if (seen_.contains(key_of(point)) || !has_law_.contains(point.call.kind)) return;
    const auto time = model_.predict(point.call, device_);
    if (!time) return;
    Errors& errors = errors_[point.call.kind];
    errors.law.push_back(100 * std::abs(time->seconds / point.seconds - 1));
    errors.roofline.push_back(100 * std::abs(time->roofline_seconds / point.seconds - 1));
    const bool is_inside =
        time->seconds_low <= point.seconds && point.seconds <= time->seconds_high;
    if (is_inside) ++errors.inside;
  }
  void hand_over(Agreement& agreement) const {
    Errors all;
    for (const auto& [kind, errors] : errors_) {
      agreement.unseen_by_class.push_back({kind, summary_of(errors)});
      all.law.insert(all.law.end(), errors.law.begin(), errors.law.end());
      all.roofline.insert(all.roofline.end(), errors.roofline.begin(), errors.roofline.end());
      all.inside += errors.inside;
    }
    if (!all.law.empty()) agreement.unseen = summary_of(all);
  }

 private:
  struct Errors {
    std::vector<double> law;
    std::vector<double> roofline;
    int64_t inside = 0;
  };
  Unseen() : model_(timing::TimingModel::built_in()) {}
  static UnseenShapes summary_of(const Errors& errors) {
    return {static_cast<int64_t>(errors.law.size()), errors.inside, median(errors.law),
            median(errors.roofline)};
  }

  timing::TimingModel model_;
  device::Device device_;
  std::set<std::string> seen_;
  std::set<OperatorClass> has_law_;
  std::map<OperatorClass, Errors> errors_;
};

}  // namespace

std::optional<bool> agrees(const Agreement& agreement) {
  constexpr double kLeastShare = 0.85;
  if (agreement.judged == 0) return std::nullopt;
  return static_cast<double>(agreement.within) >=
         kLeastShare * static_cast<double>(agreement.judged);
}

Result<Agreement> agreement(const timing::Calibration& earlier, const timing::Calibration& later,
                            const device::DeviceCatalogue& catalogue) {
  HEADROOM_TRY(timing::check_same_machine(earlier.machine, later.machine, {}));
  Agreement all;
  for (size_t i = 0; i < timing::kOperatorClasses; ++i) {
    const auto kind = static_cast<OperatorClass>(i);
    const ClassAgreement found =
        agreement_of(kind, points_of(earlier, kind), points_of(later, kind));
    if (found.points == 0) continue;
    all.points += found.points;
    if (found.stated_pct) all.judged += found.points;
    all.within += found.within;
    all.classes.push_back(found);
  }
  HEADROOM_ASSIGN(Unseen unseen, Unseen::make(earlier, catalogue));
  for (const MeasuredPoint& point : later.points) unseen.add(point);
  unseen.hand_over(all);
  if (all.points == 0 && all.unseen.points == 0) {
    return Error{ErrorCode::bad_input,
                 "no point was measured in both runs",
                 {},
                 "runs of the same --seconds on the same machine measure the same shapes"};
  }
  return all;
}

}  // namespace headroom::bench
