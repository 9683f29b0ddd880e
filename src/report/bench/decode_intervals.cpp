#include "report/bench/decode_intervals.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace headroom::report {

using timing::DecodeStep;
using timing::TimeInterval;

namespace {

// All of a step but one part: sums of times that err apart, so their widths add as squares.
TimeInterval rest_of(const DecodeStep& step, const TimeInterval& part) {
  double below = 0;
  double above = 0;
  const std::array parts{&step.attention.time, &step.matmul.time,      &step.other.time,
                         &step.quantize.time,  &step.collectives.time, &step.host};
  for (const TimeInterval* each : parts) {
    if (each == &part) continue;
    below += std::pow(each->seconds - each->low_seconds, 2);
    above += std::pow(each->high_seconds - each->seconds, 2);
  }
  const double seconds = std::max(0.0, step.parts_seconds() - part.seconds);
  return {std::max(0.0, seconds - std::sqrt(below)), seconds, seconds + std::sqrt(above)};
}

double log_ratio(double a, double b) { return a > 0 && b > 0 ? std::log(a / b) : 0; }

}  // namespace

Spread share_spread(const DecodeStep& step, const TimeInterval& part) {
  const TimeInterval rest = rest_of(step, part);
  if (!(part.seconds > 0)) {
    return {0, part.high_seconds > 0 ? part.high_seconds / (part.high_seconds + rest.seconds) : 0};
  }
  if (!(rest.seconds > 0)) return {1, 1};
  const double odds = std::log(part.seconds / rest.seconds);
  const double down = std::hypot(log_ratio(part.seconds, part.low_seconds),
                                 log_ratio(rest.high_seconds, rest.seconds));
  const double up = std::hypot(log_ratio(part.high_seconds, part.seconds),
                               log_ratio(rest.seconds, rest.low_seconds));
  const auto share = [](double log_odds) { return 1 / (1 + std::exp(-log_odds)); };
  return {share(odds - down), share(odds + up)};
}

Spread rate_spread(double amount, const TimeInterval& time) {
  if (!(time.low_seconds > 0)) return {0, 0};
  return {amount / time.high_seconds, amount / time.low_seconds};
}

}  // namespace headroom::report
