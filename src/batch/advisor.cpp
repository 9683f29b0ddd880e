#include "batch/advisor.h"

#include <algorithm>

namespace headroom::batch {

std::string_view name_of(Bound bound) {
  switch (bound) {
    case Bound::latency:
      return "latency";
    case Bound::efficiency:
      return "efficiency";
    case Bound::throughput:
      return "throughput";
    case Bound::memory:
      return "memory";
    case Bound::measured:
      return "measured";
    case Bound::engine:
      return "engine";
  }
  return "unknown";
}

Interval BatchingConfigurationAdvisor::efficiency(const BatchPoint& point, const BatchPoint& one) {
  const auto batch = static_cast<double>(point.batch);
  const Interval& rate = point.throughput_tokens_per_second;
  const Interval& single = one.throughput_tokens_per_second;
  if (point.batch == one.batch) return {1, 1, 1};
  return {rate.low / (batch * single.high), rate.expected / (batch * single.expected),
          rate.high / (batch * single.low)};
}

namespace {

double rate_of(const BatchPoint& point) { return point.throughput_tokens_per_second.expected; }

// By point: the most that it or a larger one gives.
std::vector<double> most_from(const std::vector<BatchPoint>& curve) {
  std::vector<double> most;
  for (const BatchPoint& point : curve) most.push_back(rate_of(point));
  for (size_t i = most.size(); i-- > 1;) most[i - 1] = std::max(most[i - 1], most[i]);
  return most;
}

// The largest so far of those that may be chosen, without those from which on all give less than a
// smaller one of them.
class Choice {
 public:
  bool take(const BatchPoint& point, double most_from_here) {
    if (most_from_here < most_) return false;
    most_ = std::max(most_, rate_of(point));
    batch_ = point.batch;
    return true;
  }
  [[nodiscard]] const std::optional<int64_t>& batch() const { return batch_; }

 private:
  double most_ = 0;
  std::optional<int64_t> batch_;
};

}  // namespace

Advice BatchingConfigurationAdvisor::advise(const std::vector<BatchPoint>& curve,
                                            const BatchPoint& one, Bound last_bound) const {
  const auto in_time = [&](double seconds) {
    return meets(seconds, options_.itl_target_seconds).value_or(true);
  };
  const auto may = [&](double pays, double itl_seconds) {
    return pays > options_.min_efficiency && in_time(itl_seconds);
  };
  Choice expected;
  Choice at_worst;
  Choice at_best;
  std::optional<Bound> beyond;  // what the first candidate beyond the chosen one misses
  const std::vector<double> most = most_from(curve);
  for (size_t i = 0; i < curve.size(); ++i) {
    const BatchPoint& point = curve[i];
    if (options_.most_batch && point.batch > *options_.most_batch) {
      beyond = beyond.value_or(Bound::engine);
      break;
    }
    const Interval pays = efficiency(point, one);
    const Interval& itl = point.itl_seconds;
    const bool is_candidate = may(pays.expected, itl.expected);
    if (is_candidate && expected.take(point, most[i])) {
      beyond.reset();
    } else if (!beyond) {
      beyond = is_candidate            ? Bound::throughput
               : in_time(itl.expected) ? Bound::efficiency
                                       : Bound::latency;
    }
    if (may(pays.low, itl.high)) at_worst.take(point, most[i]);
    if (may(pays.high, itl.low)) at_best.take(point, most[i]);
  }
  Advice advice{expected.batch(), at_worst.batch(), at_best.batch(), beyond.value_or(last_bound)};
  // A batch that may be chosen at one end alone can outdo others there; the interval holds B_opt.
  if (advice.batch && advice.low) advice.low = std::min(*advice.low, *advice.batch);
  if (advice.batch && advice.high) advice.high = std::max(*advice.high, *advice.batch);
  return advice;
}

}  // namespace headroom::batch
