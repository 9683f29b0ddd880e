#include "serving/load_summary.h"

#include <algorithm>

#include "serving/latency_histogram.h"
#include "serving/load_tally.h"

namespace headroom::serving {
namespace {

Spread spread_of(std::vector<double> values) {
  Spread spread;
  spread.count = static_cast<int64_t>(values.size());
  if (values.empty()) return spread;
  std::sort(values.begin(), values.end());
  for (const double value : values) spread.mean += value / static_cast<double>(values.size());
  spread.p50 = nearest_rank(values, 0.5);
  spread.p90 = nearest_rank(values, 0.9);
  spread.p99 = nearest_rank(values, 0.99);
  return spread;
}

// Tokens and chunks of the requests that are finished and say how many tokens they had.
double mean_tokens_per_chunk(const LoadRun& run) {
  double tokens = 0;
  double chunks = 0;
  for (const RequestRecord& request : run.requests) {
    if (!request.is_finished || !request.completion_tokens) continue;
    tokens += static_cast<double>(*request.completion_tokens);
    chunks += static_cast<double>(request.arrived.size());
  }
  return chunks > 0 && tokens > 0 ? tokens / chunks : 1;
}

struct Window {
  double begin = 0;
  double end = 0;
  [[nodiscard]] bool holds(double at) const { return at >= begin && at < end; }
  [[nodiscard]] double overlap(double from, double to) const {
    return std::max(0.0, std::min(to, end) - std::max(from, begin));
  }
};

// What is summed up over all streams.
struct Sums {
  double tokens = 0;            // in the window
  double tokens_after = 0;      // of them, those that are no stream's first
  double gap_seconds = 0;       // of streams between first and last chunk, in the window
  double decoding_seconds = 0;  // the same, and up to the window's end where a stream goes on
  std::vector<double> gaps;
  std::vector<double> ttft;
  std::vector<double> visible;
  std::vector<double> tpot;
  std::vector<double> e2e;
  LoadTally tally;
};

void add_stream(const RequestRecord& request, const Window& window, double per_chunk, Sums& sums) {
  const std::vector<double>& arrived = request.arrived;
  if (arrived.empty()) return;
  if (request.is_finished && request.completion_tokens) {
    per_chunk =
        static_cast<double>(*request.completion_tokens) / static_cast<double>(arrived.size());
  }
  for (size_t i = 0; i < arrived.size(); ++i) {
    const double gap = i > 0 ? arrived[i] - arrived[i - 1] : -1;
    if (i > 0) {
      const double inside = window.overlap(arrived[i - 1], arrived[i]);
      sums.gap_seconds += inside;
      // A gap that the window's edge cuts counts as so much of its tokens.
      if (gap > 0) sums.tokens_after += per_chunk * inside / gap;
      if (gap == 0 && window.holds(arrived[i])) sums.tokens_after += per_chunk;
    }
    if (!window.holds(arrived[i])) continue;
    sums.tokens += per_chunk;
    sums.tally.add(arrived[i] - window.begin, gap);
    if (i > 0) sums.gaps.push_back(gap);
  }
  const bool goes_on = !request.is_finished && request.failure == Failure::none;
  sums.decoding_seconds += window.overlap(arrived.front(), goes_on ? window.end : arrived.back());
}

void add_request(const RequestRecord& request, const Window& window, Sums& sums) {
  const bool began_inside = window.holds(request.began) && !request.is_initial;
  const bool ended_inside = request.is_finished && window.holds(request.ended);
  if (request.arrived.empty()) return;
  if (began_inside && window.holds(request.arrived.front())) {
    sums.ttft.push_back(request.arrived.front() - request.began);
  }
  if (began_inside && request.first_visible >= 0 && window.holds(request.first_visible)) {
    sums.visible.push_back(request.first_visible - request.began);
  }
  const double tokens = static_cast<double>(
      request.completion_tokens.value_or(static_cast<int64_t>(request.arrived.size())));
  if (ended_inside && tokens > 1) {
    sums.tpot.push_back((request.arrived.back() - request.arrived.front()) / (tokens - 1));
  }
  if (began_inside && ended_inside) sums.e2e.push_back(request.ended - request.began);
}

void count_request(const RequestRecord& request, LoadSummary& summary) {
  if (request.failure != Failure::none) {
    ++summary.failed;
    ++summary.failures[static_cast<size_t>(request.failure)];
    return;
  }
  if (!request.is_finished) return;
  ++summary.finished;
  if (!request.completion_tokens || !request.prompt_tokens) {
    summary.has_usage = false;
    return;
  }
  if (*request.completion_tokens < request.output_asked) ++summary.ended_early;
  if (request.is_initial) return;
  summary.lengths.push_back(
      {*request.prompt_tokens, std::max<int64_t>(1, *request.completion_tokens)});
  summary.input_asked_mean += static_cast<double>(request.input_asked);
  summary.output_asked_mean += static_cast<double>(request.output_asked);
}

std::optional<double> hits_by_usage(const LoadRun& run, const Window& window) {
  double cached = 0;
  double all = 0;
  for (const RequestRecord& request : run.requests) {
    const bool counts = request.is_finished && !request.is_initial && window.holds(request.began);
    if (!counts || !request.prompt_tokens || !request.cached_tokens) continue;
    cached += static_cast<double>(*request.cached_tokens);
    all += static_cast<double>(*request.prompt_tokens);
  }
  if (!(all > 0)) return std::nullopt;
  return std::min(1.0, cached / all);
}

std::optional<double> hits_by_metrics(const LoadRun& run, const Window& window) {
  const MetricsSample* first = nullptr;
  const MetricsSample* last = nullptr;
  for (const MetricsSample& sample : run.metrics) {
    if (!window.holds(sample.at) || !sample.prefix_queries || !sample.prefix_hits) continue;
    if (first == nullptr) first = &sample;
    last = &sample;
  }
  if (first == nullptr) return std::nullopt;
  const double queries = *last->prefix_queries - *first->prefix_queries;
  const double hits = *last->prefix_hits - *first->prefix_hits;
  if (!(queries > 0) || !(hits >= 0)) return std::nullopt;
  return std::min(1.0, hits / queries);
}

void add_metrics(const LoadRun& run, const Window& window, LoadSummary& summary) {
  const auto mean_of = [&](std::optional<double> MetricsSample::*field) {
    std::optional<double> sum;
    double count = 0;
    for (const MetricsSample& sample : run.metrics) {
      if (!window.holds(sample.at) || !(sample.*field)) continue;
      sum = sum.value_or(0) + *(sample.*field);
      count += 1;
    }
    if (sum) *sum /= count;
    return sum;
  };
  summary.server_running = mean_of(&MetricsSample::running);
  summary.server_waiting = mean_of(&MetricsSample::waiting);
  for (const MetricsSample& sample : run.metrics) {
    if (!sample.kv_share || !window.holds(sample.at)) continue;
    summary.kv_share = std::max(summary.kv_share.value_or(0), *sample.kv_share);
  }
}

}  // namespace

Result<LoadSummary> summarise(const LoadRun& run) {
  const Window window{run.window_begin, run.window_end};
  LoadSummary summary;
  summary.concurrency = run.concurrency;
  summary.requests = run.sent;
  summary.window_seconds = window.end - window.begin;
  summary.tokens_per_chunk = mean_tokens_per_chunk(run);
  Sums sums;
  for (const RequestRecord& request : run.requests) {
    count_request(request, summary);
    if (request.failure != Failure::none) continue;
    add_stream(request, window, summary.tokens_per_chunk, sums);
    add_request(request, window, sums);
  }
  if (!(sums.tokens > 0) || !(sums.tokens_after > 0) || !(summary.window_seconds > 0)) {
    return Error{ErrorCode::unavailable,
                 "too few tokens came to measure anything with " + std::to_string(run.concurrency) +
                     " requests in flight",
                 {},
                 {}};
  }
  summary.throughput_tokens_per_second = sums.tokens / summary.window_seconds;
  summary.itl_seconds = sums.gap_seconds / sums.tokens_after;
  summary.running_mean = sums.decoding_seconds / summary.window_seconds;
  const LoadTally::Errors errors = sums.tally.errors(summary.window_seconds);
  summary.throughput_error = errors.throughput;
  summary.itl_error = errors.gap;
  summary.ttft = spread_of(std::move(sums.ttft));
  summary.first_visible = spread_of(std::move(sums.visible));
  summary.itl_chunks = spread_of(std::move(sums.gaps));
  summary.tpot = spread_of(std::move(sums.tpot));
  summary.e2e = spread_of(std::move(sums.e2e));
  summary.lag = run.lag;
  summary.is_void = run.lag.mean_seconds > kMostLagShare * summary.itl_seconds ||
                    run.lag.busy_share > kMostBusyShare;
  const auto whole = static_cast<double>(std::max<size_t>(1, summary.lengths.size()));
  summary.input_asked_mean /= whole;
  summary.output_asked_mean /= whole;
  add_metrics(run, window, summary);
  summary.prefix_hit_share = hits_by_usage(run, window);
  if (!summary.prefix_hit_share) summary.prefix_hit_share = hits_by_metrics(run, window);
  return summary;
}

}  // namespace headroom::serving
