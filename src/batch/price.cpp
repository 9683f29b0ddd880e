#include "batch/price.h"

#include "base/check.h"

namespace headroom::batch {

Interval cost_of_million(double per_hour, double busy, const Interval& tokens_per_second) {
  HEADROOM_CHECK(tokens_per_second.low > 0 && busy > 0, "a throughput");
  const auto cost = [&](double rate) { return per_hour / (rate * 3600 * busy) * 1e6; };
  return {cost(tokens_per_second.high), cost(tokens_per_second.expected),
          cost(tokens_per_second.low)};
}

}  // namespace headroom::batch
