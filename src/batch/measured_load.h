// A running server under open load: requests sent at a rate whether or not the ones before were
// answered, and what percentiles and goodput that gives.
//
// Warm-up, window and drain are a third of the window, the window and a minute at most. A run that
// the generator itself was too slow for is made once more. Blocking; not thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "batch/live_meter.h"
#include "batch/question.h"
#include "serving/open_generator.h"

namespace headroom::batch {

// The highest rate that keeps the targets lies between two that were measured.
struct RateSearch {
  static constexpr double kNear = 1.1;  // their ratio, at which it ends
  static constexpr int kMostRuns = 20;
  std::optional<double> kept;     // nothing: not even the lowest that a window can show
  std::optional<double> missed;   // nothing: it was stopped before
  std::optional<double> is_void;  // at which the generator itself was too slow, which ended it
  bool is_stopped = false;        // by its time, the most runs, such a run, or an error
};

enum class RateVerdict : uint8_t { kept, missed, is_void };

struct LoadRecord {
  std::string url;
  std::string api;  // completions or chat
  std::string served_model;
  double prefix_hit = 0;  // that was asked for: share of each prompt that begins alike in all
  std::vector<serving::LatencyTarget> targets;
  std::vector<serving::MeasuredLoad> loads;  // by rate
  std::optional<RateSearch> search = {};     // where the highest rate was searched
  std::optional<Error> error = {};           // that ended it, after something was measured
  double seconds = 0;
};

// By runs at rates: from the lowest of which a window shows enough, upwards. `run` makes one; an
// Error of it ends the search, and is put into `error`.
[[nodiscard]] RateSearch search_rate(const LiveQuestion& live,
                                     const std::function<Result<RateVerdict>(double)>& run,
                                     std::optional<Error>& error);

// Of the question's rates, or where it has none the recorded one. `on_measured` is told each. An
// Error where none can be measured.
Result<LoadRecord> measure_open_load(
    const LiveQuestion& live, const BatchQuestion& question,
    const std::function<void(const serving::MeasuredLoad&)>& on_measured);

}  // namespace headroom::batch
