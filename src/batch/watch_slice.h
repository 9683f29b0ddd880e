// What a server did between two readings of its metrics.
//
// All of it is differences of counters, so nothing between two readings is missed. How many are in
// flight is Little's law: sequences spent so many seconds between tokens in so many seconds of the
// clock. The gauge of running requests would be one moment in five seconds. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "serving/server_metrics.h"

namespace headroom::batch {

struct MetricsSample {
  double seconds = 0;  // of any clock that does not go back
  serving::ServerMetrics metrics;
};

struct TrafficSlice {
  double seconds = 0;      // how long it is
  double in_flight = 0;    // sequences between two tokens, of one engine, mean
  double itl_seconds = 0;  // mean time between tokens
  double tokens = 0;       // behind the first of each answer, of all engines
  int64_t engines = 1;     // behind the address, alike
  // Of all engines; nothing where the server does not count it.
  std::optional<double> waiting = std::nullopt;
  std::optional<double> kv_share = std::nullopt;
  std::optional<double> preemptions = std::nullopt;
  std::optional<double> prompt_tokens = std::nullopt;
  std::optional<double> output_tokens = std::nullopt;
  std::optional<double> answered = std::nullopt;
};

enum class SliceFault : uint8_t {
  none,
  no_figures,  // nothing tells the times between tokens
  restarted,   // a counter went back
  idle,        // too few tokens came to say anything
  absurd,      // figures that no server can have
};
[[nodiscard]] std::string_view words_of(SliceFault fault);

struct SliceReading {
  TrafficSlice slice;  // where there is no fault
  SliceFault fault = SliceFault::none;
};
[[nodiscard]] SliceReading slice_between(const MetricsSample& before, const MetricsSample& after);

}  // namespace headroom::batch
