#include "batch/advisor.h"

#include <algorithm>

namespace headroom::batch {

std::string_view name_of(Bound bound) {
  switch (bound) {
    case Bound::latency:
      return "latency";
    case Bound::efficiency:
      return "efficiency";
    case Bound::memory:
      return "memory";
    case Bound::measured:
      return "measured";
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

Advice BatchingConfigurationAdvisor::advise(const std::vector<BatchPoint>& curve,
                                            const BatchPoint& one, Bound last_bound) const {
  Advice advice;
  advice.bound = last_bound;
  const auto in_time = [&](double seconds) {
    return !options_.itl_target_seconds || seconds <= *options_.itl_target_seconds;
  };
  bool is_bounded = false;  // by what the first candidate beyond the chosen one misses
  for (const BatchPoint& point : curve) {
    const Interval pays = efficiency(point, one);
    const Interval& itl = point.itl_seconds;
    if (pays.expected > options_.min_efficiency && in_time(itl.expected)) {
      advice.batch = point.batch;
      advice.bound = last_bound;
      is_bounded = false;
    } else if (!is_bounded) {
      is_bounded = true;
      advice.bound = in_time(itl.expected) ? Bound::efficiency : Bound::latency;
    }
    if (pays.low > options_.min_efficiency && in_time(itl.high)) advice.low = point.batch;
    if (pays.high > options_.min_efficiency && in_time(itl.low)) advice.high = point.batch;
  }
  return advice;
}

}  // namespace headroom::batch
