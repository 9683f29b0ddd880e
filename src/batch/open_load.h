// Open load on a server that is not there: requests come at a rate, and percentiles of their
// latencies, goodput and the best batch limit follow from a simulated engine (docs/algorithms/
// open_load.md).
//
// The engine's steps are the curve's, measured or predicted. Every figure is simulated with the
// steps at the low, the expected and the high end of their interval, with the same requests; for
// Poisson arrivals with three drawings of them. The interval spans all of these: it has the law's
// uncertainty, as if it erred alike at all batches, and what the number of requests leaves open.
// Held against one run of a window, it is instead what 90 % of thirty such runs show.
// Pure; thread-safe; some thirty milliseconds a simulation, of which there are a few hundred.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "batch/curve.h"
#include "batch/predicted.h"
#include "batch/question.h"
#include "serving/open_load.h"

namespace headroom::batch {

struct LatencyIntervals {
  Interval mean;
  Interval p50;
  Interval p90;
  Interval p95;
  Interval p99;
};

// Of the targets that there are: without any, yes. At risk: at one end of the law, not at the
// other. Where more come than are answered, no.
enum class Kept : uint8_t { no, at_risk, yes };
[[nodiscard]] std::string_view name_of(Kept kept);

// A rate at one limit.
struct OpenLoadRow {
  double requests_per_second = 0;
  LatencyIntervals latency[serving::kLatencyMetrics];
  std::vector<Interval> at_targets;  // seconds, of each target
  Interval throughput_tokens_per_second;
  Interval goodput_requests_per_second;
  Interval attained;  // share of the requests that meets all targets
  double in_batch_mean = 0;
  double kv_most_share = 0;
  double preemptions_per_request = 0;
  double tokens_per_step = 1;  // of a sequence that decodes
  double prompt_hit_share = 0;
  int64_t refused = 0;  // longer than the cache, of one drawing
  bool is_saturated = false;
  Kept kept = Kept::yes;
  bool is_kept_as_expected = true;
  [[nodiscard]] const LatencyIntervals& of(serving::LatencyMetric metric) const {
    return latency[static_cast<size_t>(metric)];
  }
};

// What a limit could do.
struct OpenLoadLimit {
  int64_t limit = 1;
  double closed_requests_per_second = 0;  // with so many always in flight
  std::optional<double> highest_rate =
      std::nullopt;  // that keeps the targets; nothing: not simulated, as
                     // another is better than this could be
};

struct OpenLoadAnswer {
  std::vector<serving::LatencyTarget> targets;  // those of the question, and its mean ITL
  int64_t limit = 1;                            // of the rows
  std::vector<OpenLoadRow> rows;                // by rate
  double closed_requests_per_second = 0;        // with as many in flight as the limit, always
  Interval highest_rate;                        // at the limit, that keeps the targets
  std::vector<OpenLoadLimit> by_limit;          // empty where a limit was given
  std::optional<int64_t> limit_low;  // best limit at the bad, and the good, end of the law
  std::optional<int64_t> limit_high;
  std::string arrivals;                                // poisson or recorded
  std::optional<double> recorded_requests_per_second;  // the trace's own, where no rate was asked
  int64_t requests = 0;                                // simulated a rate, in each drawing
  std::optional<double> window_seconds;                // of each run that the rows are of instead
  int64_t runs = 0;                                    // so many
  int64_t refused = 0;  // of a drawing, or of a run at the lowest rate: longer than the cache
  bool knows_cache = false;
  std::string prompt_source;  // where the time of prompts is from
  Provenance provenance = Provenance::extrapolated;
};

// What the simulated engine is made of.
struct OpenLoadBasis {
  // Low, expected and high end of what iterations take.
  std::vector<serving::IterationLaw> laws;
  std::vector<BatchPoint> limits;                // candidates, by batch
  std::vector<formats::RequestLengths> lengths;  // drawn from
  int64_t chosen = 1;                            // B_opt of the closed loop, or the largest
  std::optional<int64_t> kv_blocks;
  double context_mean = 1;  // tokens that one in flight holds
  std::string prompt_source;
};

// From the prediction alone, scaled by what it was off.
Result<OpenLoadBasis> basis_of_prediction(const BatchQuestion& question, const Workload& workload,
                                          const Predicted& predicted,
                                          const Correction& correction = {});

// From the question's points, on their curve, with prompts as predicted where there is a prediction
// (else null); without points from the prediction.
Result<OpenLoadBasis> open_load_basis(const BatchQuestion& question, const Workload& workload,
                                      const ServingCurve& curve, const Predicted* predicted);

// The question's requests, or as many that are drawn by its means.
[[nodiscard]] std::vector<formats::RequestLengths> lengths_of(const BatchQuestion& question);

// Requests a second, over the whole of a trace. REQUIRES: times has arrivals.
[[nodiscard]] double recorded_rate(const formats::RequestTimes& times);

// Whether the values are in range.
Result<void> check_open_load(const OpenLoadQuestion& question);

Result<OpenLoadAnswer> answer_open_load(const BatchQuestion& question, const OpenLoadBasis& basis,
                                        std::optional<double> itl_target_seconds);

// A server's best limit, or the one of the question, and the highest rate that keeps the targets
// there: as expected, and with steps at either end of their law.
struct LoadBest {
  int64_t limit = 1;
  Interval highest_rate{};  // requests a second; 0: none keeps them
};

// To hold devices, settings and lengths against each other under the same requests: one drawing
// alone, a third as long as the answer's. The limit is `usual` where that is nearly the best, so
// that what is compared is not two limits. Half a second.
LoadBest best_of_load(const BatchQuestion& question, const OpenLoadBasis& basis,
                      const serving::OpenLoadGoal& goal, int64_t usual);

}  // namespace headroom::batch
