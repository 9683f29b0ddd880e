// Latency targets as people write them: "itl=2x@32", "itl=50ms".
//
// Pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace headroom::batch {

// An upper bound of the mean time between tokens: a time, or a multiple of what it is at a batch.
struct ItlTarget {
  std::optional<double> seconds = std::nullopt;
  double multiple = 0;  // where there is no time
  int64_t at_batch = 1;
};

// One target; percentiles and time to first token are Errors of kind unavailable, as a mean says
// nothing of them.
Result<ItlTarget> parse_slo(std::string_view words);

}  // namespace headroom::batch
