// Requests that come by themselves, at a rate, and what their latencies are held against.
//
//   TTFT   from the arrival of a request to its first token
//   ITL    between two tokens of a request; of all gaps of all requests
//   TPOT   (last token - first token) / (tokens - 1), of requests with two tokens at least
//   E2E    from the arrival to the last token
//
// A percentile is the least value that so many of all are not above (nearest rank). A request meets
// a target of TTFT, TPOT or E2E if its own value is no longer; one of the mean ITL if the mean of
// its gaps is not, one of a percentile of ITL if at most the rest of its gaps is longer. A load
// keeps its targets if each holds for the mean or the percentile that it names over all requests;
// or, where a share is asked for, if so many requests meet all of them. Goodput counts requests
// that meet all targets. (docs/algorithms/open_load.md)
//
// Pure; thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/request_lengths.h"
#include "serving/engine_simulator.h"

namespace headroom::serving {

enum class LatencyMetric : uint8_t { ttft, itl, tpot, e2e };
inline constexpr size_t kLatencyMetrics = 4;
[[nodiscard]] std::string_view name_of(LatencyMetric metric);

struct LatencyTarget {
  LatencyMetric metric = LatencyMetric::ttft;
  double percentile = 0;  // 0: the mean
  double seconds = 0;
};
[[nodiscard]] std::string name_of(const LatencyTarget& target);  // "ttft_p95", "itl_mean"

// One request that was answered, or was not.
struct OpenRequest {
  double arrived = 0;  // where it was to be sent: what waits at the sender counts
  double first_token = 0;
  double ended = 0;
  int64_t tokens = 0;
  int64_t gaps = 0;       // between tokens that do not come together
  int64_t late_gaps = 0;  // longer than the target of a percentile of ITL
  bool is_answered = false;
};

struct LatencySpread {
  int64_t count = 0;
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p95 = 0;
  double p99 = 0;
};

struct OpenLoadGoal {
  std::vector<LatencyTarget> targets;
  std::optional<double> attain;  // share of the requests that is to meet all targets
  // Of the target of a percentile of ITL; what OpenRequest::late_gaps counts.
  [[nodiscard]] double late_gap_seconds() const;
};

struct OpenLoadSummary {
  int64_t requests = 0;
  int64_t unanswered = 0;  // of them
  double window_seconds = 0;
  double requests_per_second = 0;             // that came
  double throughput_requests_per_second = 0;  // as many as these tokens are, of those that came
  double throughput_tokens_per_second = 0;  // written; of a request that the window cuts, its part
  LatencySpread spread[kLatencyMetrics];
  std::vector<double> at_targets;  // what each target bounds
  double attained = 1;             // share of the requests that meets all targets
  double goodput_requests_per_second = 0;
  bool is_saturated = false;  // fewer ended than came: latencies grow with the time that is watched
  bool meets_targets = true;  // so far as this window shows
  bool is_kept = true;        // the targets, by a load that is not saturated
  [[nodiscard]] const LatencySpread& of(LatencyMetric metric) const {
    return spread[static_cast<size_t>(metric)];
  }
};

// Sorts them. All figures are 0 where there are none.
[[nodiscard]] LatencySpread spread_of(std::vector<double> values);

// Of requests in order of arrival those in [from, to), which came in the window from the first of
// them until `window_end`; what ended meanwhile may be any. `gaps`: between their tokens.
[[nodiscard]] OpenLoadSummary summarise_open(const std::vector<OpenRequest>& requests, size_t from,
                                             size_t to, double window_end,
                                             const LatencyHistogram& gaps,
                                             const OpenLoadGoal& goal);

// So many requests as a Poisson process of one a second (Arrivals are stretched to other rates).
// Each length comes as often as another, or once more, in an order by the seed: so drawings of
// few requests have the mean that they are drawn from. REQUIRES: lengths are not empty.
[[nodiscard]] Arrivals poisson_arrivals(const std::vector<formats::RequestLengths>& lengths,
                                        size_t count, uint64_t seed);

// So many requests as they were recorded, stretched by nobody; where the trace is shorter it begins
// again, its prompts then unlike those before. REQUIRES: times has arrivals, one for each request.
[[nodiscard]] Arrivals recorded_arrivals(const std::vector<formats::RequestLengths>& requests,
                                         const formats::RequestTimes& times, size_t count);

// A load on a simulated engine.
struct OpenLoad {
  Arrivals arrivals;
  double natural_rate = 1;  // of these arrivals, a second
  size_t from = 0;          // what comes before warms up
  size_t to = 0;            // and what comes behind keeps the load up
  // Whether the engine is met at work: as many requests are in it as will be on average, each drawn
  // in proportion to its output, at a random place of it (batch/workload.h). Else it is idle.
  bool is_met_at_work = true;
};

struct SimulatedLoad {
  OpenLoadSummary summary;
  double in_batch_mean = 0;
  double kv_most_share = 0;
  int64_t preemptions = 0;
  double tokens_per_step = 1;   // of a sequence that decodes
  double prompt_hit_share = 0;  // of prompt tokens
};

// REQUIRES: requests_per_second > 0, and what simulate() requires.
[[nodiscard]] SimulatedLoad simulate_load(const OpenLoad& load, double requests_per_second,
                                          const IterationLaw& law, const EngineLimits& limits,
                                          const OpenLoadGoal& goal);

// Requests a second that an engine answers which has so many at all times.
[[nodiscard]] double closed_loop_rate(const OpenLoad& load, int64_t in_flight,
                                      const IterationLaw& law, const EngineLimits& limits);

// The highest rate that `keeps` the targets, to 0.5 %, up to `most`, and one of which it was said;
// 0 where not even `most` / 1000 does. By bisection: with the same requests in the same order
// latencies grow with the rate, but for what the scheduler makes of it. `near`: about what it will
// be, to begin there; 0: not known.
[[nodiscard]] double highest_rate(double most, double near,
                                  const std::function<bool(double)>& keeps);

}  // namespace headroom::serving
