// Latency targets as people write them: "itl=2x@32", "itl=50ms", "ttft_p95=500ms,itl_p99=50ms".
//
// Pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "serving/open_load.h"

namespace headroom::batch {

// An upper bound of the mean time between tokens: a time, or a multiple of what it is at a batch.
struct ItlTarget {
  std::optional<double> seconds = std::nullopt;
  double multiple = 0;  // where there is no time
  int64_t at_batch = 1;
};

// What was asked for. The mean time between tokens is known of any batch; what else is here are
// figures of requests that come by themselves, at some rate (open_load.h).
struct Slo {
  std::optional<ItlTarget> itl;
  std::vector<serving::LatencyTarget> latencies;
};

// Targets with commas between them: itl=TIME or itl=MULTIPLEx@BATCH; ttft, tpot and e2e, with a
// percentile (ttft_p95=500ms) or without (the mean); itl_pNN. One of each name, and one percentile
// of ITL.
Result<Slo> parse_slo(std::string_view words);

}  // namespace headroom::batch
