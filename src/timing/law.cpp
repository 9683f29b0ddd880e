#include "timing/law.h"

#include <algorithm>
#include <cmath>

namespace headroom::timing {

namespace {

// Files round knots to four decimals: of a logarithm, 0.01 %.
constexpr double kKnotRounding = 1e-3;

// Where x lies among the knots: between `left` and left + 1, `share` of the way.
struct Position {
  size_t left = 0;
  double share = 0;
};

Position locate(double x, const std::vector<double>& knots) {
  const double held = std::clamp(x, knots.front(), knots.back());
  const auto above = std::upper_bound(knots.begin(), knots.end(), held);
  const auto index = static_cast<size_t>(above - knots.begin());
  const size_t right = std::clamp<size_t>(index, 1, knots.size() - 1);
  return {right - 1, (held - knots[right - 1]) / (knots[right] - knots[right - 1])};
}

double between(double a, double b, double share) { return a + (b - a) * share; }

}  // namespace

double Table::at(const Features& call) const {
  const Position first = locate(call[features[0]], knots[0]);
  if (features.size() == 1) {
    return between(values[first.left], values[first.left + 1], first.share);
  }
  const Position second = locate(call[features[1]], knots[1]);
  const size_t row = first.left * knots[1].size() + second.left;
  const size_t next = row + knots[1].size();
  return between(between(values[row], values[row + 1], second.share),
                 between(values[next], values[next + 1], second.share), first.share);
}

bool Table::holds_boundary(const Features& call) const {
  for (size_t i = 0; i < features.size(); ++i) {
    const double x = call[features[i]];
    if (x < knots[i].front() - kKnotRounding || x > knots[i].back() + kKnotRounding) return true;
  }
  return false;
}

double roof_seconds(const Roofline& roofline) {
  const double high = std::max(roofline.compute_seconds, roofline.traffic_seconds);
  const double low = std::min(roofline.compute_seconds, roofline.traffic_seconds);
  if (!(high > 0)) return 0;
  // Of the ratio, so that no power leaves the range of doubles.
  return high * std::pow(1 + std::pow(low / high, 4), 0.25);
}

namespace {

// The two half precisions are as one; an empty list holds any.
bool has_rate(const std::vector<device::Rate>& rates, device::Rate rate) {
  using device::Rate;
  const auto alike = [](Rate one) { return one == Rate::fp16 ? Rate::bf16 : one; };
  return rates.empty() || std::any_of(rates.begin(), rates.end(),
                                      [&](Rate one) { return alike(one) == alike(rate); });
}

}  // namespace

bool Law::knows(device::Rate rate) const { return has_rate(rates, rate); }

bool StepHalfWidth::judges(std::string_view device, device::Rate type) const {
  return std::ranges::find(devices, device) != devices.end() && has_rate(weights, type);
}

double InStep::ratio_on(std::string_view device) const {
  const auto own = std::ranges::find(ratios, device, &std::pair<std::string, double>::first);
  return own != ratios.end() ? own->second : ratio;
}

bool InStep::is_learned_on(std::string_view device) const {
  return std::ranges::find(devices, device) != devices.end();
}

double Law::seconds(const Features& features) const {
  double log_ratio = intercept;
  for (const Table& table : tables) log_ratio += table.at(features);
  return (start_seconds + roof_seconds(features.roofline)) * std::exp(log_ratio);
}

bool Law::holds_boundary(const Features& features) const {
  return std::any_of(tables.begin(), tables.end(),
                     [&](const Table& table) { return table.holds_boundary(features); });
}

}  // namespace headroom::timing
