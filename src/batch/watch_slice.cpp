#include "batch/watch_slice.h"

#include <algorithm>

namespace headroom::batch {
namespace {

constexpr double kFewTokens = 10;
constexpr double kMostItlSeconds = 600;
constexpr double kMostInFlight = 1e6;

using Counter = std::optional<double> serving::ServerMetrics::*;

bool went_back(const MetricsSample& before, const MetricsSample& after) {
  using serving::ServerMetrics;
  constexpr Counter kCounters[] = {&ServerMetrics::itl_seconds,   &ServerMetrics::itl_count,
                                   &ServerMetrics::prompt_tokens, &ServerMetrics::output_tokens,
                                   &ServerMetrics::answered,      &ServerMetrics::preemptions};
  return std::any_of(std::begin(kCounters), std::end(kCounters), [&](Counter counter) {
    const auto& first = before.metrics.*counter;
    const auto& second = after.metrics.*counter;
    return first && second && *second < *first;
  });
}

std::optional<double> grown(const MetricsSample& before, const MetricsSample& after,
                            Counter counter) {
  const auto& first = before.metrics.*counter;
  const auto& second = after.metrics.*counter;
  if (!first || !second) return std::nullopt;
  return *second - *first;
}

}  // namespace

std::string_view words_of(SliceFault fault) {
  switch (fault) {
    case SliceFault::none:
      return "";
    case SliceFault::no_figures:
      return "its metrics have no histogram of times between tokens "
             "(vllm:inter_token_latency_seconds, sglang:inter_token_latency_seconds)";
    case SliceFault::restarted:
      return "its counters went back: it was started again";
    case SliceFault::idle:
      return "hardly any tokens come";
    case SliceFault::absurd:
      return "its metrics hold figures that no server can have";
  }
  return "";
}

SliceReading slice_between(const MetricsSample& before, const MetricsSample& after) {
  using serving::ServerMetrics;
  SliceReading reading;
  const auto fail = [&](SliceFault fault) {
    reading.fault = fault;
    return reading;
  };
  if (!after.metrics.itl_seconds || !after.metrics.itl_count) return fail(SliceFault::no_figures);
  if (went_back(before, after)) return fail(SliceFault::restarted);
  const auto spent = grown(before, after, &ServerMetrics::itl_seconds);
  const auto tokens = grown(before, after, &ServerMetrics::itl_count);
  const double seconds = after.seconds - before.seconds;
  if (!spent || !tokens || !(seconds > 0)) return fail(SliceFault::no_figures);
  if (*tokens < kFewTokens) return fail(SliceFault::idle);
  TrafficSlice& slice = reading.slice;
  slice.seconds = seconds;
  slice.engines = std::clamp<int64_t>(after.metrics.engines, 1, 4096);
  slice.in_flight = *spent / seconds / static_cast<double>(slice.engines);
  slice.itl_seconds = *spent / *tokens;
  slice.tokens = *tokens;
  const bool is_sane =
      slice.in_flight > 0 && slice.in_flight < kMostInFlight && slice.itl_seconds < kMostItlSeconds;
  if (!is_sane) return fail(SliceFault::absurd);
  slice.waiting = after.metrics.waiting;
  slice.kv_share = after.metrics.kv_share;
  slice.preemptions = grown(before, after, &ServerMetrics::preemptions);
  slice.prompt_tokens = grown(before, after, &ServerMetrics::prompt_tokens);
  slice.output_tokens = grown(before, after, &ServerMetrics::output_tokens);
  slice.answered = grown(before, after, &ServerMetrics::answered);
  return reading;
}

}  // namespace headroom::batch
