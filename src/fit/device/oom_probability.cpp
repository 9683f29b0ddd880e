#include "fit/device/oom_probability.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace headroom::fit {

namespace {

// `share` of cases are not above `value`; straight lines between.
struct Quantile {
  double share;
  double value;
};

// (measured - predicted) / predicted of kPeaksMeasured peaks of steps, by
// docs/measurements/2026-11-22-fit-oom/analyse.py.
constexpr std::array kPeakErrors{
    Quantile{0, -0.1126},    Quantile{0.01, -0.0164}, Quantile{0.02, -0.0127},
    Quantile{0.05, -0.0052}, Quantile{0.1, -0.0031},  Quantile{0.25, 0},
    Quantile{0.5, 0},        Quantile{0.75, 0.0027},  Quantile{0.9, 0.005},
    Quantile{0.95, 0.0066},  Quantile{0.98, 0.0074},  Quantile{0.99, 0.0112},
    Quantile{1, 0.0129}};

// The value that `share` of cases stay below.
double value_at(std::span<const Quantile> quantiles, double share) {
  const auto next = std::ranges::find_if(
      quantiles, [&](const Quantile& quantile) { return quantile.share >= share; });
  if (next == quantiles.begin()) return next->value;
  if (next == quantiles.end()) return quantiles.back().value;
  const Quantile& before = *std::prev(next);
  const double part = (share - before.share) / (next->share - before.share);
  return before.value + part * (next->value - before.value);
}

// The share of cases that stay below `value`.
double share_below(std::span<const Quantile> quantiles, double value) {
  if (value <= quantiles.front().value) return 0;
  if (value >= quantiles.back().value) return 1;
  const auto next = std::ranges::find_if(
      quantiles, [&](const Quantile& quantile) { return quantile.value >= value; });
  const Quantile& before = *std::prev(next);
  const double part = (value - before.value) / (next->value - before.value);
  return before.share + part * (next->share - before.share);
}

// A 90 % interval, carried on by its outermost twentieths.
std::array<Quantile, 5> quantiles_of(const Interval& interval) {
  constexpr double kTail = 0.05 / 0.45;
  const auto low = static_cast<double>(interval.low.count);
  const auto expected = static_cast<double>(interval.expected.count);
  const auto high = static_cast<double>(interval.high.count);
  return {{{0, std::max(0.0, low - kTail * (expected - low))},
           {0.05, low},
           {0.5, expected},
           {0.95, high},
           {1, high + kTail * (high - expected)}}};
}

}  // namespace

UndecidedNeeds undecided_needs(const Interval& outside, Bytes offered) {
  const auto quantiles = quantiles_of(outside);
  const auto need = [&](const Quantile& beside, const Quantile& error) {
    const double left = static_cast<double>(offered.count) - beside.value;
    return Bytes(std::llround(std::max(0.0, left) / (1 + error.value)));
  };
  return {need(quantiles.back(), kPeakErrors.back()), need(quantiles.front(), kPeakErrors.front())};
}

double oom_probability(Bytes need, const Interval& outside, Bytes offered) {
  constexpr int kStrata = 400;
  const auto quantiles = quantiles_of(outside);
  double probability = 0;
  for (int i = 0; i < kStrata; ++i) {
    const double error = value_at(kPeakErrors, (i + 0.5) / kStrata);
    const double left =
        static_cast<double>(offered.count) - (1 + error) * static_cast<double>(need.count);
    probability += (1 - share_below(quantiles, left)) / kStrata;
  }
  return std::clamp(probability, kLeastOomProbability, 1 - kLeastOomProbability);
}

}  // namespace headroom::fit
