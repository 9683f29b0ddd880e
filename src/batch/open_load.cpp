#include "batch/open_load.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "text/number.h"

namespace headroom::batch {
namespace {

using serving::EngineLimits;
using serving::kLatencyMetrics;
using serving::LatencySpread;
using serving::OpenLoad;
using serving::OpenLoadGoal;
using serving::SimulatedLoad;

constexpr size_t kDrawings = 3;      // of Poisson arrivals, for a row
constexpr size_t kExpected = 1;      // of the three laws
constexpr size_t kRuns = 30;         // where a row is held against one run
constexpr double kTail = 0.05;       // of these runs, beyond each end of an interval
constexpr double kMostTokens = 1e6;  // that a simulation of one drawing writes, about
constexpr double kLeastRequests = 400;
constexpr double kMostRequests = 3000;
constexpr double kMostRecordedTokens = 2e6;  // the same, of a recorded trace: there is one alone
constexpr double kMostRecorded = 6000;
constexpr double kAsGood = 0.98;  // of the highest rate: a smaller limit with so much is better

Error usage(std::string words, std::string flag, std::string hint = {}) {
  return Error{ErrorCode::usage, std::move(words), std::move(flag), std::move(hint)};
}

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
  size_t end = kExpected;
};

class Simulations {
 public:
  Simulations(const BatchQuestion& question, const OpenLoadBasis& basis, OpenLoadGoal goal)
      : question_(question.open_load), basis_(basis), goal_(std::move(goal)) {
    double output = 0;
    for (const auto& request : basis.lengths) {
      output +=
          static_cast<double>(request.output_tokens) / static_cast<double>(basis.lengths.size());
    }
    output_mean_ = output;
    const bool is_recorded = question_.is_recorded();
    const auto wanted = static_cast<size_t>(
        std::clamp((is_recorded ? kMostRecordedTokens : kMostTokens) / output, kLeastRequests,
                   is_recorded ? kMostRecorded : kMostRequests));
    for (size_t drawing = 0; drawing < (is_recorded ? 1 : kDrawings); ++drawing) {
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

  [[nodiscard]] const std::vector<OpenLoad>& loads() const { return loads_; }
  // With so many always in flight: simulated, or where there are too few requests for that by the
  // curve.
  [[nodiscard]] double closed_rate(const BatchPoint& point) const {
    if (2 * point.batch < static_cast<int64_t>(loads_[0].to - loads_[0].from)) {
      return serving::closed_loop_rate(loads_[0], point.batch, basis_.laws[kExpected],
                                       limits(point.batch));
    }
    return speculation_gain(point.batch, kExpected) * point.throughput_tokens_per_second.expected /
           output_mean_;
  }
  // Tokens of a step over how much longer it takes, with so many sequences.
  [[nodiscard]] double speculation_gain(int64_t sequences, size_t end) const {
    const serving::Speculation& used = question_.speculation;
    const auto cached = static_cast<int64_t>(static_cast<double>(sequences) * basis_.context_mean);
    const serving::IterationWork work{sequences, sequences * (1 + used.draft_tokens), cached};
    return used.tokens_per_step() * basis_.laws[end].decode_seconds(sequences, cached) /
           serving::decode_seconds(basis_.laws[end], used, work);
  }
  [[nodiscard]] OpenLoadRow row(double rate, int64_t limit) const;
  [[nodiscard]] std::vector<OpenLoad> runs_at(double rate) const;
  [[nodiscard]] Interval highest_rate(const BatchPoint& point) const;
  // One drawing, at one end of the law. `near`: about what it will be; 0: not known.
  [[nodiscard]] double highest_rate(const BatchPoint& point, size_t end, size_t drawing,
                                    double near) const;

 private:
  [[nodiscard]] EngineLimits limits(int64_t limit) const {
    EngineLimits limits{.max_num_seqs = limit,
                        .max_num_batched_tokens = question_.max_num_batched_tokens,
                        .has_chunked_prefill = question_.has_chunked_prefill,
                        .speculation = question_.speculation};
    if (basis_.kv_blocks) limits.kv_blocks = *basis_.kv_blocks;
    return limits;
  }

  const OpenLoadQuestion& question_;
  const OpenLoadBasis& basis_;
  OpenLoadGoal goal_;
  double output_mean_ = 1;
  std::vector<OpenLoad> loads_;
};

// So many runs as long as the one that the row is held against, each with requests of its own.
// Three points stand for the law: its ends a fifth of the runs each, which has about the variance
// of a normal error whose 90 % interval they bound.
std::vector<OpenLoad> Simulations::runs_at(double rate) const {
  std::vector<OpenLoad> runs;
  const double wanted = std::clamp(rate * *question_.window_seconds, 20.0, kMostRequests);
  for (size_t run = 0; run < kRuns; ++run) {
    const auto window = static_cast<size_t>(std::llround(wanted));
    OpenLoad load{.arrivals = {},
                  .natural_rate = 1,
                  .from = window / 3,
                  .to = window / 3 + window,
                  .is_met_at_work = true};
    load.arrivals = serving::poisson_arrivals(basis_.lengths, load.to + window / 10 + 1,
                                              question_.seed + kDrawings + run);
    runs.push_back(std::move(load));
  }
  return runs;
}

// A summary's figures, in the order in which a row has them.
std::array<double, 5> figures_of(const LatencySpread& spread) {
  return {spread.mean, spread.p50, spread.p90, spread.p95, spread.p99};
}

LatencyIntervals intervals_of(const std::array<Span, 5>& spans, double tail) {
  return {spans[0].interval(tail), spans[1].interval(tail), spans[2].interval(tail),
          spans[3].interval(tail), spans[4].interval(tail)};
}

OpenLoadRow Simulations::row(double rate, int64_t limit) const {
  OpenLoadRow row;
  row.requests_per_second = rate;
  std::array<std::array<Span, 5>, kLatencyMetrics> latency;
  std::vector<Span> targets(goal_.targets.size());
  Span throughput;
  Span goodput;
  Span attained;
  int kept = 0;
  int kept_expected = 0;
  int saturated = 0;
  const bool is_of_runs = question_.window_seconds && !question_.is_recorded();
  const std::vector<OpenLoad> runs = is_of_runs ? runs_at(rate) : std::vector<OpenLoad>();
  std::vector<Drawing> drawings;
  for (size_t run = 0; run < runs.size(); ++run) {
    drawings.push_back({&runs[run], run % 5 == 0 ? 0 : run % 5 == 1 ? 2 : kExpected});
  }
  for (size_t end = 0; end < basis_.laws.size() && !is_of_runs; ++end) {
    for (const OpenLoad& load : loads_) drawings.push_back({&load, end});
  }
  const auto expected = static_cast<double>(std::ranges::count(drawings, kExpected, &Drawing::end));
  for (const Drawing& drawing : drawings) {
    const bool is_expected = drawing.end == kExpected;
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
    kept += summary.is_kept ? 1 : 0;
    if (!is_expected) continue;
    kept_expected += summary.is_kept ? 1 : 0;
    row.in_batch_mean += run.in_batch_mean / expected;
    row.kv_most_share = std::max(row.kv_most_share, run.kv_most_share);
    row.preemptions_per_request += static_cast<double>(run.preemptions) / expected /
                                   static_cast<double>(drawing.load->arrivals.requests.size());
    row.tokens_per_step += (run.tokens_per_step - 1) / expected;
    row.prompt_hit_share += run.prompt_hit_share / expected;
    row.refused = summary.unanswered;
    saturated += summary.is_saturated ? 1 : 0;
  }
  const double tail = is_of_runs ? kTail : 0;
  for (size_t metric = 0; metric < kLatencyMetrics; ++metric) {
    row.latency[metric] = intervals_of(latency[metric], tail);
  }
  for (const Span& span : targets) row.at_targets.push_back(span.interval(tail));
  row.throughput_tokens_per_second = throughput.interval(tail);
  row.goodput_requests_per_second = goodput.interval(tail);
  row.attained = attained.interval(tail);
  const double share = kept / static_cast<double>(drawings.size());
  row.kept = share >= 1 - tail ? Kept::yes : share <= tail ? Kept::no : Kept::at_risk;
  row.is_kept_as_expected = 2 * kept_expected > expected;
  row.is_saturated = is_of_runs ? 2 * saturated > expected : saturated > 0;
  return row;
}

double Simulations::highest_rate(const BatchPoint& point, size_t end, size_t drawing,
                                 double near) const {
  // With so many in flight at all times, at this end of the law; more is more than it can do.
  constexpr double kBeyond = 1.1;
  const Interval& closed = point.throughput_tokens_per_second;
  const double most = kBeyond *
                      (end == 0   ? closed.high
                       : end == 1 ? closed.expected
                                  : closed.low) /
                      output_mean_ * std::max(1.0, speculation_gain(point.batch, end));
  return serving::highest_rate(loads_[drawing], most, near, basis_.laws[end], limits(point.batch),
                               goal_);
}

Interval Simulations::highest_rate(const BatchPoint& point) const {
  Span span;
  double near = 0;
  for (size_t end = 0; end < basis_.laws.size(); ++end) {
    for (size_t drawing = 0; drawing < loads_.size(); ++drawing) {
      const double rate = highest_rate(point, end, drawing, near);
      span.add(rate, end == kExpected);
      near = rate;
    }
  }
  return span.interval();
}

// The smallest limit whose highest rate is nearly that of the best, at one end of the law, and what
// each limit could do. Larger ones first: what a limit can do in a closed loop bounds its rate, and
// where that is less than another's already, nothing is simulated.
int64_t best_limit(const Simulations& simulations, const OpenLoadBasis& basis, size_t end,
                   std::vector<OpenLoadLimit>& limits) {
  double best = 0;
  double near = 0;
  limits.clear();
  for (auto point = basis.limits.rbegin(); point != basis.limits.rend(); ++point) {
    OpenLoadLimit limit{.limit = point->batch,
                        .closed_requests_per_second = simulations.closed_rate(*point)};
    constexpr double kBound = 1.2;
    if (kBound * limit.closed_requests_per_second > best) {
      near = simulations.highest_rate(*point, end, 0, near);
      limit.highest_rate = near;
      best = std::max(best, near);
    }
    limits.push_back(limit);
  }
  std::reverse(limits.begin(), limits.end());
  for (const OpenLoadLimit& limit : limits) {
    if (limit.highest_rate && best > 0 && *limit.highest_rate >= kAsGood * best) return limit.limit;
  }
  return basis.chosen;
}

const BatchPoint& point_at(const OpenLoadBasis& basis, int64_t limit, BatchPoint& made) {
  const auto at = std::find_if(basis.limits.begin(), basis.limits.end(),
                               [&](const BatchPoint& point) { return point.batch == limit; });
  if (at != basis.limits.end()) return *at;
  // A limit that nobody listed: what it could do at most is that of the next larger one.
  const auto above = std::find_if(basis.limits.begin(), basis.limits.end(),
                                  [&](const BatchPoint& point) { return point.batch > limit; });
  made = above != basis.limits.end() ? *above : basis.limits.back();
  made.batch = limit;
  return made;
}

// Rates from an idle server to a little more than it can do.
std::vector<double> usual_rates(double highest) {
  std::vector<double> rates;
  for (const double share : {0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.1}) {
    rates.push_back(share * highest);
  }
  return rates;
}

}  // namespace

double recorded_rate(const formats::RequestTimes& times) {
  return static_cast<double>(times.arrived_seconds.size() - 1) / times.arrived_seconds.back();
}

std::string_view name_of(Kept kept) {
  switch (kept) {
    case Kept::no:
      return "no";
    case Kept::at_risk:
      return "at_risk";
    case Kept::yes:
      break;
  }
  return "yes";
}

Result<void> check_open_load(const OpenLoadQuestion& question) {
  if (question.rates.size() > kMostRates) {
    return usage("20 rates at most", "--rate");
  }
  for (const double rate : question.rates) {
    if (!(rate > 0) || !(rate <= kMostRate)) {
      return usage("a rate is above 0 and at most 100000 requests a second", "--rate");
    }
  }
  if (question.attain && (!(*question.attain > 0) || !(*question.attain <= 1))) {
    return usage("it takes a share from 0 to 1", "--attain", "0.95: of the requests");
  }
  if (question.limit && (*question.limit < 1 || *question.limit > kMostLimit)) {
    return usage("a limit goes from 1 to 65536 sequences", "--limit");
  }
  if (question.max_num_batched_tokens < 1 || question.max_num_batched_tokens > 100'000'000) {
    return usage("it takes 1 to 100000000 tokens", "--max-num-batched-tokens");
  }
  const serving::Speculation& speculation = question.speculation;
  if (speculation.draft_tokens < 0 ||
      speculation.draft_tokens > serving::Speculation::kMostDrafts ||
      !(speculation.acceptance >= 0) || !(speculation.acceptance <= 1) ||
      !(speculation.draft_share >= 0) || !(speculation.draft_share <= 1)) {
    return usage("it takes up to 64 drafted tokens, and shares from 0 to 1", "--speculate",
                 "4@0.7, or 4@0.7@0.05: drafting a token takes 5 % of a decode step");
  }
  const auto& prefill = question.prefill_tokens_per_second;
  if (prefill && (!(*prefill >= 1) || !(*prefill <= 1e12))) {
    return usage("it takes tokens a second, 1 at least", "--prefill-rate");
  }
  return {};
}

Result<OpenLoadAnswer> answer_open_load(const BatchQuestion& question, const OpenLoadBasis& basis,
                                        std::optional<double> itl_target_seconds) {
  HEADROOM_TRY(check_open_load(question.open_load));
  OpenLoadAnswer answer;
  answer.targets = question.open_load.targets;
  if (itl_target_seconds) {
    answer.targets.push_back({serving::LatencyMetric::itl, 0, *itl_target_seconds});
  }
  const Simulations simulations(question, basis, {answer.targets, question.open_load.attain});
  answer.prompt_source = basis.prompt_source;
  answer.knows_cache = basis.kv_blocks.has_value();
  answer.arrivals = question.open_load.is_recorded() ? "recorded" : "poisson";
  answer.requests = static_cast<int64_t>(simulations.loads()[0].to - simulations.loads()[0].from);
  answer.limit = question.open_load.limit.value_or(basis.chosen);
  if (!question.open_load.limit && !answer.targets.empty()) {
    std::vector<OpenLoadLimit> unused;
    const int64_t low = best_limit(simulations, basis, 0, unused);
    const int64_t high = best_limit(simulations, basis, 2, unused);
    answer.limit = best_limit(simulations, basis, kExpected, answer.by_limit);
    answer.limit_low = std::min({low, high, answer.limit});
    answer.limit_high = std::max({low, high, answer.limit});
  }
  BatchPoint made;
  const BatchPoint& point = point_at(basis, answer.limit, made);
  answer.highest_rate = simulations.highest_rate(point);
  std::vector<double> rates = question.open_load.rates;
  const double highest = answer.highest_rate.expected;
  if (rates.empty()) {
    rates = usual_rates(highest > 0 ? highest : simulations.closed_rate(point));
    if (question.open_load.is_recorded()) {
      answer.recorded_requests_per_second = recorded_rate(question.open_load.times);
      rates.push_back(*answer.recorded_requests_per_second);
    }
  }
  std::sort(rates.begin(), rates.end());
  for (const double rate : rates) answer.rows.push_back(simulations.row(rate, answer.limit));
  answer.refused = answer.rows.front().refused;
  if (question.open_load.window_seconds && !question.open_load.is_recorded()) {
    answer.window_seconds = question.open_load.window_seconds;
    answer.runs = kRuns;
  }
  answer.closed_requests_per_second = simulations.closed_rate(point);
  return answer;
}

}  // namespace headroom::batch
