#include "fit/measured/calibration.h"
#include "base/median.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

namespace headroom::fit {

namespace {

constexpr double kMostBytes = 0x1p62;
constexpr double kHalves = 0.5;       // what is left of the error of a model left out
constexpr double kAgreement = 0.05;   // of one model's rows
constexpr double kDifferentSize = 2;  // largest over smallest prediction of one model's rows
constexpr double kTie = 0.9;          // a ratio must beat an offset by this

using Points = std::vector<const CalibrationPoint*>;
using Groups = std::vector<Points>;  // by model, in the order of their names

double as_double(Bytes bytes) { return static_cast<double>(bytes.count); }

// Student's t, two-sided 0.5 %, by degrees of freedom from 1; the last holds for more. Two models
// (one degree) can hardly pass that, so they are held to 2 % and to a larger gain.
double t_bound(size_t degrees) {
  static constexpr std::array<double, 12> kBounds{31.821, 14.089, 7.453, 5.598, 4.773, 4.317,
                                                  4.029,  3.833,  3.690, 3.581, 3.497, 3.428};
  return kBounds[std::min(degrees, kBounds.size()) - 1];
}

double least_gain_pct(size_t models) {
  return models < 3 ? kLeastGainOfFewModelsPct : kLeastGainPct;
}

// How far from none a point is: bytes for an offset, a share for a ratio.
double residual(const CalibrationPoint& point, LawKind kind) {
  const double measured = as_double(point.measured);
  const double predicted = as_double(point.predicted);
  return kind == LawKind::offset ? measured - predicted : measured / predicted - 1.0;
}

std::vector<double> residuals_by_group(const Groups& groups, LawKind kind) {
  std::vector<double> residuals;
  for (const Points& group : groups) {
    std::vector<double> rows;
    for (const CalibrationPoint* point : group) rows.push_back(residual(*point, kind));
    residuals.push_back(median(rows));
  }
  return residuals;
}

struct Estimate {
  double value = 0;
  double standard_error = 0;
};

// Median and its standard error by the median absolute deviation; the mean's where that is 0.
Estimate estimate(const std::vector<double>& residuals) {
  Estimate found;
  found.value = median(residuals);
  const auto count = static_cast<double>(residuals.size());
  if (residuals.size() < 2) return found;
  double squares = 0;
  std::vector<double> deviations;
  for (const double r : residuals) {
    squares += (r - found.value) * (r - found.value);
    deviations.push_back(std::abs(r - found.value));
  }
  const double robust = 1.4826 * median(deviations);
  const double spread = robust > 0 ? robust : std::sqrt(squares / (count - 1));
  found.standard_error = spread / std::sqrt(count);
  return found;
}

CalibrationLaw law_of(const Groups& groups, LawKind kind) {
  const Estimate found = estimate(residuals_by_group(groups, kind));
  CalibrationLaw law;
  law.kind = kind;
  if (found.value == 0) return law;
  const double share = found.standard_error / found.value;
  const double shrunk = found.value * std::max(0.0, 1.0 - share * share);
  if (kind == LawKind::offset) {
    law.offset = Bytes(std::llround(std::clamp(shrunk, -kMostBytes, kMostBytes)));
  } else {
    law.ratio = 1.0 + shrunk;
  }
  return law;
}

double error_pct(const Points& group, const CalibrationLaw& law) {
  std::vector<double> errors;
  for (const CalibrationPoint* point : group) {
    const double measured = as_double(point->measured);
    errors.push_back(100.0 * std::abs(as_double(law.apply(point->predicted)) - measured) /
                     measured);
  }
  return median(errors);
}

bool within_bounds(const CalibrationLaw& law) {
  return std::abs(law.offset.count) <= kMostOffset.count && law.ratio <= kMostRatio &&
         law.ratio >= 1.0 / kMostRatio;
}

CalibrationLaw refused(CalibrationLaw law, std::string why) {
  law.kind = LawKind::none;
  law.offset = Bytes(0);
  law.ratio = 1;
  law.error_after_pct = law.error_before_pct;
  law.basis = std::move(why);
  return law;
}

bool differs_from_none(const std::vector<double>& residuals) {
  const auto count = static_cast<double>(residuals.size());
  double mean = 0;
  for (const double r : residuals) mean += r / count;
  double squares = 0;
  for (const double r : residuals) squares += (r - mean) * (r - mean);
  const double standard_error = std::sqrt(squares / (count - 1) / count);
  return std::abs(mean) > t_bound(residuals.size() - 1) * standard_error;
}

// A law of one kind with what speaks for it, or none with what speaks against.
CalibrationLaw tried_by_model(const Groups& groups, LawKind kind, double before) {
  CalibrationLaw law = law_of(groups, kind);
  law.error_before_pct = before;
  std::vector<double> left_out;
  bool harms = false;
  for (size_t i = 0; i < groups.size(); ++i) {
    Groups others = groups;
    others.erase(others.begin() + static_cast<ptrdiff_t>(i));
    left_out.push_back(error_pct(groups[i], law_of(others, kind)));
    harms = harms || left_out.back() > error_pct(groups[i], CalibrationLaw{});
  }
  const double after = median(left_out);
  if (!within_bounds(law) || !differs_from_none(residuals_by_group(groups, kind))) {
    return refused(std::move(law), "errors of the models do not agree on a correction");
  }
  if (harms || after > kHalves * before || before - after < least_gain_pct(groups.size())) {
    return refused(std::move(law),
                   "what is learned from some models does not help the others enough");
  }
  law.error_after_pct = after;
  law.basis = "models left out one by one";
  return law;
}

CalibrationLaw tried_on_one_model(const Points& group, double before) {
  CalibrationLaw law = law_of({group}, LawKind::offset);
  law.error_before_pct = before;
  double least = kMostBytes;
  double most = 0;
  bool agree = true;
  for (const CalibrationPoint* point : group) {
    least = std::min(least, as_double(point->predicted));
    most = std::max(most, as_double(point->predicted));
    const double off = residual(*point, LawKind::offset) - as_double(law.offset);
    agree = agree && std::abs(off) <= kAgreement * std::abs(as_double(law.offset));
  }
  const double after = error_pct(group, law);
  if (most < kDifferentSize * least) {
    return refused(std::move(law), "one model, measured at one size");
  }
  if (!agree || !within_bounds(law) || before - after < least_gain_pct(1)) {
    return refused(std::move(law),
                   "one model, whose rows do not agree on an offset worth correcting");
  }
  law.error_after_pct = after;
  law.basis = "one model alone, whose rows of different sizes agree; other models may differ";
  return law;
}

CalibrationLaw learn_one(const Groups& groups) {
  std::vector<double> errors;
  for (const Points& group : groups) errors.push_back(error_pct(group, CalibrationLaw{}));
  const double before = median(errors);
  if (groups.size() == 1) return tried_on_one_model(groups.front(), before);
  CalibrationLaw offset = tried_by_model(groups, LawKind::offset, before);
  CalibrationLaw ratio = tried_by_model(groups, LawKind::ratio, before);
  const bool ratio_wins =
      ratio.kind != LawKind::none &&
      (offset.kind == LawKind::none || ratio.error_after_pct < kTie * offset.error_after_pct);
  return ratio_wins ? ratio : offset;
}

std::string percent(double value) {
  std::array<char, 48> words{};
  std::snprintf(words.data(), words.size(), "%.2f %%", value);
  return words.data();
}

}  // namespace

std::string_view name_of(LawKind kind) {
  switch (kind) {
    case LawKind::none:
      return "none";
    case LawKind::offset:
      return "offset";
    case LawKind::ratio:
      return "ratio";
  }
  return "";
}

Bytes CalibrationLaw::apply(Bytes predicted) const {
  double value = as_double(predicted);
  if (kind == LawKind::none) return predicted;
  if (kind == LawKind::offset) value += as_double(offset);
  if (kind == LawKind::ratio) value *= ratio;
  // An offset learned on large models takes no more of a small one than a ratio could.
  value = std::max(value, as_double(predicted) / kMostRatio);
  return Bytes(std::llround(std::clamp(value, 0.0, kMostBytes)));
}

std::string CalibrationLaw::sentence() const {
  const std::string from = "from " + std::to_string(rows) + " rows of " + std::to_string(models) +
                           (models == 1 ? " model" : " models");
  std::string line = std::string(name_of(metric)) + ": ";
  if (kind == LawKind::none) return line + "no correction, " + from + " (" + basis + ")";
  if (kind == LawKind::offset) {
    line += (offset.count < 0 ? "-" : "+") + format_bytes(Bytes(std::abs(offset.count)));
  } else {
    std::array<char, 48> factor{};
    std::snprintf(factor.data(), factor.size(), "x %.4f", ratio);
    line += factor.data();
  }
  return line + ", " + from + ": median error " + percent(error_before_pct) + " before, " +
         percent(error_after_pct) + " after (" + basis + ")";
}

const CalibrationLaw* Calibration::law_for(Metric metric, std::string_view device) const {
  for (const CalibrationLaw& law : laws) {
    if (law.metric != metric || law.kind == LawKind::none) continue;
    const bool measured_here = std::ranges::find(law.devices, device) != law.devices.end();
    return metric != Metric::device_used || measured_here ? &law : nullptr;
  }
  return nullptr;
}

std::vector<CalibrationLaw> learn(const std::vector<CalibrationPoint>& points) {
  std::map<Metric, std::map<std::string, Points>> by_metric;
  for (const CalibrationPoint& point : points) {
    if (point.predicted <= Bytes(0) || point.measured <= Bytes(0)) continue;
    by_metric[point.metric][point.model].push_back(&point);
  }
  std::vector<CalibrationLaw> laws;
  for (const auto& [metric, by_model] : by_metric) {
    Groups groups;
    std::set<std::string> devices;
    int64_t rows = 0;
    for (const auto& [model, members] : by_model) {
      groups.push_back(members);
      rows += static_cast<int64_t>(members.size());
      for (const CalibrationPoint* point : members) devices.insert(point->device);
    }
    CalibrationLaw law = learn_one(groups);
    law.metric = metric;
    law.rows = rows;
    law.models = static_cast<int64_t>(groups.size());
    law.devices.assign(devices.begin(), devices.end());
    laws.push_back(std::move(law));
  }
  return laws;
}

}  // namespace headroom::fit
