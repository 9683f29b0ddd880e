// A closed loop: so many requests always in flight against a server, watched until its steady state
// is known; then so many others.
//
// Each slot asks, reads its answer to the end and asks again. A new slot begins in the middle of a
// request's life: drawn in proportion to its output, at a uniformly random place of it, with what
// it would have written by then in its prompt. So the contexts in flight are those of the steady
// state from the first step on (batch/workload.h has the same law), and what must be waited for is
// only that every slot has a token. Then the window opens; it closes when the standard errors of
// throughput and of the time between tokens are below LoadCare::precision, or after most_seconds.
//
// What is in flight then goes on: the next measurement keeps as many of the streams as it needs,
// adds slots or cancels some. Any of them are as good as others, so a smaller number in flight is
// in its steady state at once, and costs no requests but those that end while it is watched.
//
// A failed request is kept with what went wrong, and its slot waits a moment. When most fail, the
// measurement ends with an Error. Its time is bounded by start_seconds + most_seconds + a second.
// Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/request_lengths.h"
#include "serving/request_stream.h"

namespace headroom::serving {

struct MetricsSample {
  double at = 0;
  std::optional<double> running = std::nullopt;
  std::optional<double> waiting = std::nullopt;
  std::optional<double> kv_share = std::nullopt;
  std::optional<double> preemptions = std::nullopt;
  // Of prompts, since the server started: looked up in its cache of prefixes, and found.
  std::optional<double> prefix_queries = std::nullopt;
  std::optional<double> prefix_hits = std::nullopt;
};

struct LoadPlan {
  std::vector<formats::RequestLengths> lengths;  // drawn from, uniformly
  uint64_t seed = 0;
  double prefix_share = 0;    // of each prompt, that begins alike in all
  double start_seconds = 30;  // for all slots' first tokens
  double settle_seconds = 0.3;
  double most_seconds = 30;
  double stall_seconds = 60;
};

// When a window may close before its longest time.
struct LoadCare {
  double least_seconds = 2;
  double precision = 0.01;  // relative standard error
};

struct LoadRun {
  int64_t concurrency = 1;
  int64_t sent = 0;                     // requests that this measurement began
  std::vector<RequestRecord> requests;  // that were in flight in it
  double window_begin = 0;
  double window_end = 0;
  GeneratorLag lag;  // in the window
  std::vector<MetricsSample> metrics;
  std::string first_failure;  // in words
  Clock::time_point began;    // to hold it against other clocks of this machine
};

inline constexpr int64_t kMostConcurrency = 4096;

class LoadGenerator {
 public:
  // `streams` and `server` must outlive it. REQUIRES: the plan's lengths are not empty.
  LoadGenerator(HttpStreams& streams, const Server& server, LoadPlan plan);
  ~LoadGenerator();  // cancels what is in flight
  LoadGenerator(const LoadGenerator&) = delete;
  LoadGenerator& operator=(const LoadGenerator&) = delete;

  // REQUIRES: 1 <= concurrency <= kMostConcurrency.
  Result<LoadRun> measure(int64_t concurrency, const LoadCare& care = {});

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace headroom::serving
