#include "batch/load_simulations.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"

namespace headroom::batch {
namespace {

using serving::EngineLimits;
using serving::kLatencyMetrics;
using serving::LatencySpread;
using serving::OpenLoad;
using serving::OpenLoadGoal;
using serving::SimulatedLoad;

constexpr double kTail = 0.05;  // of these runs, beyond each end of an interval
constexpr double kLeastRequests = 400;
constexpr double kMostRequests = 3000;
constexpr double kRecordedTimes = 2;  // as much of a recorded trace: there is one alone

// What was simulated of one figure: its mean under the expected law, and how far it goes.
class Span {
 public:
  void add(double value, bool is_expected) {
    values_.push_back(value);
    if (!is_expected) return;
    sum_ += value;
    ++expected_;
  }
  // From the value that `tail` of all are below to the one that so many are above.
  [[nodiscard]] Interval interval(double tail = 0) const {
    std::vector<double> sorted = values_;
    std::sort(sorted.begin(), sorted.end());
    const double mean = expected_ > 0 ? sum_ / expected_ : 0;
    if (sorted.empty()) return {0, mean, 0};
    const auto cut = static_cast<size_t>(tail * static_cast<double>(sorted.size()));
    return {std::min(sorted[cut], mean), mean, std::max(sorted[sorted.size() - 1 - cut], mean)};
  }

 private:
  std::vector<double> values_;
  double sum_ = 0;
  int expected_ = 0;
};

// One simulation of a row: requests, at one end of the law.
struct Drawing {
  const OpenLoad* load = nullptr;
  size_t end = kExpectedEnd;
};

// What several drawings show of a rate together.
class Together {
 public:
  void add(const serving::OpenLoadSummary& summary) {
    ++count_;
    at_targets_.resize(summary.at_targets.size());
    for (size_t i = 0; i < at_targets_.size(); ++i) at_targets_[i] += summary.at_targets[i];
    attained_ += summary.attained;
    saturated_ += summary.is_saturated ? 1 : 0;
    answered_ += summary.requests - summary.unanswered;
  }
  [[nodiscard]] bool is_saturated() const { return 2 * saturated_ > count_; }
  // Whether the means of the figures keep the targets.
  [[nodiscard]] bool is_kept(const OpenLoadGoal& goal) const {
    if (is_saturated() || answered_ == 0) return false;
    if (goal.attain) return attained_ >= *goal.attain * count_;
    for (size_t i = 0; i < at_targets_.size(); ++i) {
      if (at_targets_[i] > goal.targets[i].seconds * count_) return false;
    }
    return true;
  }

 private:
  double count_ = 0;
  std::vector<double> at_targets_;
  double attained_ = 0;
  double saturated_ = 0;
  int64_t answered_ = 0;
};

// A summary's figures, in the order in which a row has them.
std::array<double, 5> figures_of(const LatencySpread& spread) {
  return {spread.mean, spread.p50, spread.p90, spread.p95, spread.p99};
}

LatencyIntervals intervals_of(const std::array<Span, 5>& spans, double tail) {
  return {spans[0].interval(tail), spans[1].interval(tail), spans[2].interval(tail),
          spans[3].interval(tail), spans[4].interval(tail)};
}

}  // namespace

LoadSimulations::LoadSimulations(const BatchQuestion& question, const OpenLoadBasis& basis,
                                 OpenLoadGoal goal, const SimulatedExtent& extent)
    : question_(question.open_load),
      basis_(basis),
      goal_(std::move(goal)),
      judges_backlog_(extent.judges_backlog) {
  double output = 0;
  for (const auto& request : basis.lengths) {
    output +=
        static_cast<double>(request.output_tokens) / static_cast<double>(basis.lengths.size());
  }
  output_mean_ = output;
  const bool is_recorded = question_.is_recorded();
  const double times = is_recorded ? kRecordedTimes : 1;
  const auto wanted = static_cast<size_t>(
      std::clamp(times * extent.tokens / output, kLeastRequests, times * kMostRequests));
  for (size_t drawing = 0; drawing < (is_recorded ? 1 : extent.drawings); ++drawing) {
    // A third before, until as many wait as will; and some behind.
    const size_t from = wanted / 3;
    const size_t to = from + wanted;
    const size_t all = to + wanted / 10;
    OpenLoad load{
        .arrivals = {}, .natural_rate = 1, .from = from, .to = to, .is_met_at_work = true};
    load.arrivals = is_recorded
                        ? serving::recorded_arrivals(question.requests, question_.times, all)
                        : serving::poisson_arrivals(basis.lengths, all, question_.seed + drawing);
    const auto& requests = load.arrivals.requests;
    load.natural_rate =
        static_cast<double>(wanted) / (requests[to].seconds - requests[from].seconds);
    loads_.push_back(std::move(load));
  }
}

EngineLimits LoadSimulations::limits(int64_t limit) const {
  EngineLimits limits{.max_num_seqs = limit,
                      .max_num_batched_tokens = question_.max_num_batched_tokens,
                      .has_chunked_prefill = question_.has_chunked_prefill,
                      .speculation = question_.speculation};
  if (basis_.kv_blocks) limits.kv_blocks = *basis_.kv_blocks;
  return limits;
}

// Tokens of a step over how much longer it takes, with so many sequences.
double LoadSimulations::speculation_gain(int64_t sequences, size_t end) const {
  const serving::Speculation& used = question_.speculation;
  const auto cached = static_cast<int64_t>(static_cast<double>(sequences) * basis_.context_mean);
  const serving::IterationWork work{sequences, sequences * (1 + used.draft_tokens), cached};
  return used.tokens_per_step() * basis_.laws[end].decode_seconds(sequences, cached) /
         serving::decode_seconds(basis_.laws[end], used, work);
}

double LoadSimulations::closed_rate(const BatchPoint& point, size_t end) const {
  if (2 * point.batch < static_cast<int64_t>(loads_[0].to - loads_[0].from)) {
    return serving::closed_loop_rate(loads_[0], point.batch, basis_.laws[end], limits(point.batch));
  }
  const Interval& rate = point.throughput_tokens_per_second;
  const double at_end = std::array{rate.high, rate.expected, rate.low}[end];
  return speculation_gain(point.batch, end) * at_end / output_mean_;
}

// So many runs as long as the one that the row is held against, each with requests of its own.
// Three points stand for the law: its ends a fifth of the runs each, which has about the variance
// of a normal error whose 90 % interval they bound.
std::vector<OpenLoad> LoadSimulations::runs_at(double rate) const {
  std::vector<OpenLoad> runs;
  const double wanted = std::clamp(rate * *question_.window_seconds, 20.0, kMostRequests);
  for (size_t run = 0; run < kSimulatedRuns; ++run) {
    const auto window = static_cast<size_t>(std::llround(wanted));
    OpenLoad load{.arrivals = {},
                  .natural_rate = 1,
                  .from = window / 3,
                  .to = window / 3 + window,
                  .is_met_at_work = true};
    load.arrivals = serving::poisson_arrivals(basis_.lengths, load.to + window / 10 + 1,
                                              question_.seed + kOfAnswer.drawings + run);
    runs.push_back(std::move(load));
  }
  return runs;
}

OpenLoadRow LoadSimulations::row(double rate, int64_t limit,
                                 const std::array<double, 3>& closed) const {
  OpenLoadRow row;
  row.requests_per_second = rate;
  std::array<std::array<Span, 5>, kLatencyMetrics> latency;
  std::vector<Span> targets(goal_.targets.size());
  Span throughput;
  Span goodput;
  Span attained;
  int kept = 0;
  Together together;
  const bool is_of_runs = question_.window_seconds && !question_.is_recorded();
  const std::vector<OpenLoad> runs = is_of_runs ? runs_at(rate) : std::vector<OpenLoad>();
  std::vector<Drawing> drawings;
  for (size_t run = 0; run < runs.size(); ++run) {
    drawings.push_back({&runs[run], run % 5 == 0 ? 0 : run % 5 == 1 ? 2 : kExpectedEnd});
  }
  for (size_t end = 0; end < basis_.laws.size() && !is_of_runs; ++end) {
    for (const OpenLoad& load : loads_) drawings.push_back({&load, end});
  }
  const auto expected =
      static_cast<double>(std::ranges::count(drawings, kExpectedEnd, &Drawing::end));
  for (const Drawing& drawing : drawings) {
    const bool is_expected = drawing.end == kExpectedEnd;
    const SimulatedLoad run =
        serving::simulate_load(*drawing.load, rate, basis_.laws[drawing.end], limits(limit), goal_);
    const serving::OpenLoadSummary& summary = run.summary;
    for (size_t metric = 0; metric < kLatencyMetrics; ++metric) {
      const auto figures = figures_of(summary.spread[metric]);
      for (size_t i = 0; i < figures.size(); ++i) latency[metric][i].add(figures[i], is_expected);
    }
    for (size_t i = 0; i < targets.size(); ++i) targets[i].add(summary.at_targets[i], is_expected);
    throughput.add(summary.throughput_tokens_per_second, is_expected);
    goodput.add(summary.goodput_requests_per_second, is_expected);
    attained.add(summary.attained, is_expected);
    const bool is_beyond = !is_of_runs && rate > closed[drawing.end];
    kept += summary.is_kept && !is_beyond ? 1 : 0;
    if (!is_expected) continue;
    together.add(summary);
    row.in_batch_mean += run.in_batch_mean / expected;
    row.kv_most_share = std::max(row.kv_most_share, run.kv_most_share);
    row.preemptions_per_request += static_cast<double>(run.preemptions) / expected /
                                   static_cast<double>(drawing.load->arrivals.requests.size());
    row.tokens_per_step += (run.tokens_per_step - 1) / expected;
    row.prompt_hit_share += run.prompt_hit_share / expected;
    row.refused = summary.unanswered;
  }
  const double tail = is_of_runs ? kTail : 0;
  for (size_t metric = 0; metric < kLatencyMetrics; ++metric) {
    row.latency[metric] = intervals_of(latency[metric], tail);
  }
  for (const Span& span : targets) row.at_targets.push_back(span.interval(tail));
  row.throughput_tokens_per_second = throughput.interval(tail);
  row.goodput_requests_per_second = goodput.interval(tail);
  row.attained = attained.interval(tail);
  row.is_saturated = together.is_saturated() || (!is_of_runs && rate > closed[kExpectedEnd]);
  const double share = kept / static_cast<double>(drawings.size());
  row.kept = row.is_saturated || share <= tail            ? Kept::no
             : goal_.targets.empty() || share >= 1 - tail ? Kept::yes
                                                          : Kept::at_risk;
  row.is_kept_as_expected = !row.is_saturated && together.is_kept(goal_);
  return row;
}

bool LoadSimulations::keeps(int64_t limit, size_t end, size_t drawing, double rate) const {
  const auto summary =
      serving::simulate_load(loads_[drawing], rate, basis_.laws[end], limits(limit), goal_).summary;
  return judges_backlog_ ? summary.is_kept : summary.meets_targets;
}

double LoadSimulations::highest_of(int64_t limit, size_t end, size_t drawing, double closed,
                                   double near) const {
  return serving::highest_rate(closed, near,
                               [&](double rate) { return keeps(limit, end, drawing, rate); });
}

double LoadSimulations::highest_expected(int64_t limit, double closed, double near) const {
  const auto keeps = [&](double rate) {
    Together together;
    for (const OpenLoad& load : loads_) {
      together.add(
          serving::simulate_load(load, rate, basis_.laws[kExpectedEnd], limits(limit), goal_)
              .summary);
    }
    return together.is_kept(goal_);
  };
  return serving::highest_rate(closed, near, keeps);
}

Interval LoadSimulations::highest_interval(int64_t limit, const std::array<double, 3>& closed,
                                           double expected) const {
  constexpr std::array<size_t, 2> kEnds{0, 2};
  std::vector<double> rates(kEnds.size() * loads_.size());
  for_each_in_parallel(rates.size(), 0, [&](size_t i) {
    const size_t end = kEnds[i / loads_.size()];
    rates[i] = highest_of(limit, end, i % loads_.size(), closed[end], expected);
  });
  Span span;
  span.add(expected, true);
  for (const double rate : rates) span.add(rate, false);
  return span.interval();
}

}  // namespace headroom::batch
