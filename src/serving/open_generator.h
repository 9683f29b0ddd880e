// Requests sent to a server at the times of a plan, whether or not it has answered the ones before.
//
// Latencies count from the time at which a request was to be sent: what the generator itself is
// late is in them, is told besides, and voids the run where it is much. Requests are sent until
// those that are wanted have ended, so that they meet the load from their first token to the last;
// a server that does not follow is left after `drain_seconds`. A request that failed is not sent
// again. One thread; bounded by the plan's last time and drain_seconds. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "serving/open_load.h"
#include "serving/request_stream.h"

namespace headroom::serving {

struct OpenLoadPlan {
  Arrivals arrivals;  // in seconds from the beginning
  size_t from = 0;    // the requests that are wanted
  size_t to = 0;
  uint64_t seed = 0;        // of prompts
  double prefix_share = 0;  // of each prompt without hashes, that begins alike in all
  double drain_seconds = 60;
  double stall_seconds = 60;
};

// What was asked for at a time.
struct SentRequest {
  double scheduled = 0;
  RequestRecord record;  // as far as it came
  bool is_sent = false;
};

struct OpenLoadRun {
  std::vector<SentRequest> requests;  // of the plan, in its order
  size_t from = 0;
  size_t to = 0;
  double window_end = 0;
  GeneratorLag lag;  // of what was received
  std::string first_failure;
};

// More at once are not sent: the server answers far fewer than come.
inline constexpr size_t kMostOpenRequests = 4096;

[[nodiscard]] OpenLoadRun run_open_load(HttpStreams& streams, const Server& server,
                                        const OpenLoadPlan& plan);

struct MeasuredLoad {
  double asked_requests_per_second = 0;
  OpenLoadSummary summary;
  int64_t sent = 0;
  int64_t failed = 0;
  std::array<int64_t, kFailures> failures{};
  std::string first_failure;
  LatencySpread send_lag;  // between when a request was to be sent and when it was
  GeneratorLag lag;
  double input_tokens_mean = 0;  // of the answered, by usage
  double output_tokens_mean = 0;
  std::optional<double> prefix_hit_share = std::nullopt;  // of prompt tokens, by usage
  bool is_void = false;                                   // the generator itself was too slow
  double seconds = 0;
};

// An Error where no wanted request was answered.
Result<MeasuredLoad> summarise(const OpenLoadRun& run, const OpenLoadGoal& goal);

// Of a run of which no wanted request was answered: what went wrong, and no latencies.
[[nodiscard]] MeasuredLoad unanswered(const OpenLoadRun& run);

// No request of it found a server that takes connections.
[[nodiscard]] bool is_unreachable(const OpenLoadRun& run);

}  // namespace headroom::serving
