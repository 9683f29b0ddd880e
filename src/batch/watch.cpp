#include "batch/watch.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace headroom::batch {
namespace {

constexpr double kNinetyPercent = 1.645;  // standard deviations on either side
constexpr double kWellKnown = 0.03;       // of an intercept: from then on the learned law is kept
// Relative deviation of half-minute means before it is learned: twice what 50 requests in flight
// with exponential lengths have where half of a step is their context.
constexpr double kAssumedNoise = 0.1;
constexpr double kEver = std::numeric_limits<double>::infinity();

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// Of so many values each, up to the last.
std::vector<double> means_of(const std::vector<double>& values, size_t length) {
  std::vector<double> means;
  for (size_t first = values.size() % length; first < values.size(); first += length) {
    double sum = 0;
    for (size_t i = first; i < first + length; ++i) sum += values[i];
    means.push_back(sum / static_cast<double>(length));
  }
  return means;
}

// REQUIRES: two values.
double deviation_of(const std::vector<double>& values) {
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

}  // namespace

std::string_view name_of(WatchEvent event) {
  switch (event) {
    case WatchEvent::none:
      return "none";
    case WatchEvent::first:
      return "first";
    case WatchEvent::change:
      return "change";
  }
  return "unknown";
}

Watcher::Watcher(const WatchOptions& options, std::optional<StepBase> base)
    : options_(options), least_noise_(kAssumedNoise), limit_(options.limit) {
  is_learning_ = !base.has_value();
  if (base) take_base(*std::move(base));
}

void Watcher::take_base(StepBase base) {
  base_ = std::move(base);
  candidates_ = usual_limits(1, options_.most_batch.value_or(base_->most_batch));
  for (Seen& seen : history_) seen.law_seconds = base_->seconds(seen.slice.in_flight);
}

// The largest c with which `batch` meets the rule. With t(n) = t0(n) + c n:
//   a time as target    t(B) <= T            c <= (T - t0(B)) / B
//   a multiple          t(B) <= m t(r)       c <= (m t0(r) - t0(B)) / (B - m r)       where B > m r
//   efficiency          t(1) >= e t(B)       c <= (t0(1) - e t0(B)) / (e B - 1)       where e B > 1
// Elsewhere the rule asks nothing of c. REQUIRES: a multiple is 1 at least.
double Watcher::allowance(double batch, const Off& off) const {
  const auto law = [&](double n) { return base_->seconds(n) + off.base_seconds; };
  const double step = law(batch) * (1 + off.bend);
  double least = kEver;
  if (const auto& slo = options_.slo) {
    if (slo->seconds) {
      least = (*slo->seconds - step) / batch;
    } else {
      const auto reference = static_cast<double>(slo->at_batch);
      const double growth = batch - slo->multiple * reference;
      if (growth > 0) least = (slo->multiple * law(reference) - step) / growth;
    }
  }
  const double growth = options_.min_efficiency * batch - 1;
  if (growth > 0) least = std::min(least, (law(1) - options_.min_efficiency * step) / growth);
  return least;
}

// How far a step's residual may have moved between what is in flight and a batch that is not:
// step_law.h's correlation.
double Watcher::bend_at(double batch, double in_flight) const {
  const double alike = std::exp(-std::abs(std::log2(batch / in_flight)) / StepLaw::kReach);
  return StepLaw::kAmplitude * std::sqrt(1 - alike * alike);
}

// What c is below the batch's allowance, and its standard deviation: of the base (which moves c,
// too), of the bend, and of what the traffic wanders by.
std::pair<double, double> Watcher::margin(double batch, const Present& present) const {
  const double allowed = allowance(batch, {});
  if (allowed == kEver) return {kEver, 0};
  const double base = base_->base_error_seconds;
  const double by_base = allowance(batch, {base, 0}) - allowed + base / present.in_flight;
  const double by_bend = allowance(batch, {0, bend_at(batch, present.in_flight)}) - allowed;
  const double by_noise = level_noise_ * present.itl_seconds / present.in_flight;
  return {allowed - present.excess, std::hypot(by_base, by_bend, by_noise)};
}

Bound Watcher::bound_beyond(double batch, const Present& present) const {
  const auto above =
      std::upper_bound(candidates_.begin(), candidates_.end(), batch,
                       [](double b, int64_t limit) { return b < static_cast<double>(limit); });
  if (above == candidates_.end()) return Bound::measured;
  const auto next = static_cast<double>(*above);
  if (!present.holds(next)) return Bound::memory;
  const double step = base_->seconds(next) + present.excess * next;
  const double one = base_->seconds(1) + present.excess;
  return one > options_.min_efficiency * step ? Bound::latency : Bound::efficiency;
}

Advice Watcher::advise(const Present& present) const {
  Advice advice;
  for (const int64_t batch : candidates_) {
    // A limit that is already in force has shown that it can be.
    const bool is_held = present.holds(static_cast<double>(batch)) || (limit_ && batch <= *limit_);
    if (!is_held) break;
    const auto [ahead, deviation] = margin(static_cast<double>(batch), present);
    if (ahead >= 0) advice.batch = batch;
    if (ahead >= kNinetyPercent * deviation) advice.low = batch;
    if (ahead >= -kNinetyPercent * deviation) advice.high = batch;
  }
  advice.bound = bound_beyond(static_cast<double>(advice.batch.value_or(0)), present);
  return advice;
}

// A step with `batch` in flight: what is seen, moved along the law.
Interval Watcher::itl_at(double batch, const Present& present) const {
  const double expected =
      std::max(base_->seconds(batch) + present.excess * batch, 1e-3 * present.itl_seconds);
  const double by_base = (1 - batch / present.in_flight) * base_->base_error_seconds;
  const double by_bend = bend_at(batch, present.in_flight) * expected;
  const double by_noise = level_noise_ * present.itl_seconds * batch / present.in_flight;
  const double deviation = std::hypot(by_base, by_bend, by_noise);
  const double spread = std::exp(kNinetyPercent * deviation / expected);
  return {expected / spread, expected, expected * spread};
}

WatchFigures Watcher::figures_at(int64_t batch, const Present& present,
                                 const WatchReport& report) const {
  const auto n = static_cast<double>(batch);
  WatchFigures figures;
  figures.itl_seconds = itl_at(n, present);
  // Tokens come as they do now, but for how many are in a step and how long it takes.
  const double rate =
      report.throughput_tokens_per_second * n / present.in_flight * present.itl_seconds;
  figures.throughput_tokens_per_second = {rate / figures.itl_seconds.high,
                                          rate / figures.itl_seconds.expected,
                                          rate / figures.itl_seconds.low};
  if (report.kv_share) figures.kv_share = *report.kv_share * n / present.in_flight;
  return figures;
}

// Of the newest slices: totals, and c by least squares of relative deviations.
Watcher::Present Watcher::present_of(size_t slices) const {
  Present present;
  double seconds = 0, in_flight = 0, tokens = 0, spent = 0, weights = 0, excess = 0;
  double kv = 0, with_kv = 0;  // shares, and what was in flight then
  for (size_t i = history_.size() - slices; i < history_.size(); ++i) {
    const Seen& seen = history_[i];
    seconds += seen.slice.seconds;
    in_flight += seen.slice.in_flight * seen.slice.seconds;
    tokens += seen.slice.tokens;
    spent += seen.slice.itl_seconds * seen.slice.tokens;
    const double leverage = seen.slice.in_flight / seen.slice.itl_seconds;
    weights += leverage * leverage;
    excess += leverage * leverage * seen.excess();
    if (seen.slice.kv_share) {
      kv += *seen.slice.kv_share;
      with_kv += seen.slice.in_flight;
    }
  }
  if (with_kv > 0) present.kv_of_one = kv / with_kv;
  present.in_flight = in_flight / seconds;
  present.itl_seconds = spent / tokens;
  present.excess = excess / weights;
  return present;
}

std::optional<double> Watcher::target_of(const Present& present) const {
  const auto& slo = options_.slo;
  if (!slo || slo->seconds) return slo ? slo->seconds : std::nullopt;
  return slo->multiple * itl_at(static_cast<double>(slo->at_batch), present).expected;
}

// The figures of the minute, or of what is left of it since a change. May be told twice.
void Watcher::describe_present(WatchReport& report) const {
  const size_t slices = std::min(kWindow, history_.size());
  const Present present = present_of(slices);
  report.in_flight = present.in_flight;
  report.itl_seconds = present.itl_seconds;
  double seconds = 0, tokens = 0;
  double kv = 0, kv_slices = 0;
  double prompts = 0, outputs = 0, answered = 0;
  report.preemptions.reset();
  report.kv_share.reset();
  report.prompt_tokens_mean.reset();
  report.output_tokens_mean.reset();
  for (size_t i = history_.size() - slices; i < history_.size(); ++i) {
    const TrafficSlice& slice = history_[i].slice;
    seconds += slice.seconds;
    tokens += slice.tokens;
    if (slice.kv_share) kv += *slice.kv_share, kv_slices += 1;
    if (slice.preemptions) {
      report.preemptions = report.preemptions.value_or(0) + *slice.preemptions;
    }
    prompts += slice.prompt_tokens.value_or(0);
    outputs += slice.output_tokens.value_or(0);
    answered += slice.answered.value_or(0);
  }
  report.throughput_tokens_per_second = tokens / seconds;
  if (kv_slices > 0) report.kv_share = kv / kv_slices;
  constexpr double kFewAnswers = 3;
  if (answered >= kFewAnswers && prompts > 0) report.prompt_tokens_mean = prompts / answered;
  if (answered >= kFewAnswers && outputs > 0) report.output_tokens_mean = outputs / answered;
  const TrafficSlice& last = history_.back().slice;
  report.waiting = last.waiting;
  report.engines = last.engines;
}

// What means of half a minute scatter by, over twenty minutes at most, as relative times between
// tokens. Where means of two minutes scatter hardly less, what is in flight wanders (a few long
// answers stay for minutes): then it has been seen to wander only so long as it was watched, and
// counts by half more; so it does before there are enough of them to know.
//
// The long-run deviation of a slice is that times the root of how many slices are in a mean, so
// noise that lasts counts for what it does to sums. The newest minute, and all since evidence
// began, is left out: a change does not pass for noise while it happens.
void Watcher::learn_noise() {
  constexpr double kLeast = 0.01;  // clocks, and slices that do not end with a step
  constexpr double kWanders = 1.5;
  constexpr double kOfFew = 4;  // a deviation of k means may be low by about so much / k
  constexpr size_t kOfLong = 4 * kOfMean;
  const double slices = std::sqrt(static_cast<double>(kOfMean));
  const size_t newest = std::max({kWindow, since_down_, since_up_});
  const size_t usable = history_.size() > newest ? history_.size() - newest : 0;
  level_noise_ = least_noise_;
  slice_noise_ = level_noise_ * slices;
  if (usable < 4 * kOfMean) return;
  double usual = 0;
  for (size_t i = 0; i < usable; ++i) usual += history_[i].excess() / static_cast<double>(usable);
  std::vector<double> off;
  for (size_t i = 0; i < usable; ++i) {
    const TrafficSlice& slice = history_[i].slice;
    off.push_back((history_[i].excess() - usual) * slice.in_flight / slice.itl_seconds);
  }
  const std::vector<double> means = means_of(off, kOfMean);
  const std::vector<double> long_means = means_of(off, kOfLong);
  const double of_means = deviation_of(means);
  constexpr size_t kEnough = 5;
  const double wandering = long_means.size() < kEnough ? of_means : deviation_of(long_means);
  const double few = 1 + kOfFew / static_cast<double>(means.size());
  level_noise_ = std::max(kLeast, std::max(of_means, kWanders * wandering) * few);
  slice_noise_ = std::max(level_noise_ * slices, deviation_of(off));
}

// The batch at whose allowance the limit in force is no longer the right one; nothing where it
// cannot be wrong that way.
std::optional<double> Watcher::edge(Way way) const {
  if (!limit_) return std::nullopt;
  if (way == Way::down) {
    const double batch = static_cast<double>(*limit_) / (1 + kDeadBand);
    return batch >= 1 ? std::optional(batch) : std::nullopt;
  }
  const auto next = std::upper_bound(candidates_.begin(), candidates_.end(), *limit_);
  if (next == candidates_.end()) return std::nullopt;
  return static_cast<double>(*next) * (1 + kDeadBand);
}

void Watcher::gather(const Seen& seen) {
  constexpr double kMost = kThreshold + kClip;  // so that an evidence that is gone is soon over
  const double scale = seen.slice.in_flight / seen.slice.itl_seconds / slice_noise_;
  const auto add = [&](Way way, double& sum, size_t& since) {
    const std::optional<double> at = edge(way);
    if (!at) {
      sum = 0;
      since = 0;
      return;
    }
    const double beyond = (seen.excess() - allowance(*at, {})) * scale;
    const double wrong = std::clamp(way == Way::down ? beyond : -beyond, -kClip, kClip);
    sum = std::clamp(sum + wrong - kDrift, 0.0, kMost);
    since = sum > 0 ? since + 1 : 0;
  };
  add(Way::down, sum_down_, since_down_);
  add(Way::up, sum_up_, since_up_);
}

// That the limit in force is outside the interval of B_opt, the law's own errors counted.
bool Watcher::is_sure(Way way, const Present& present) const {
  const std::optional<double> at = edge(way);
  if (!at) return false;
  if (way == Way::up && !present.holds(*at)) return false;
  const auto [ahead, deviation] = margin(*at, present);
  return way == Way::down ? ahead < -kNinetyPercent * deviation
                          : ahead > kNinetyPercent * deviation;
}

void Watcher::restart_at(std::optional<int64_t> limit, size_t kept) {
  limit_ = limit;
  sum_down_ = sum_up_ = 0;
  since_down_ = since_up_ = 0;
  while (history_.size() > kept) history_.pop_front();
}

// That c, in what came since the evidence began, is not what it was before.
bool Watcher::is_other_traffic(size_t since) const {
  const size_t newest = std::min({since, kOfMean, history_.size()});
  if (history_.size() < since + kFirst) return false;
  std::vector<double> before;
  for (size_t i = 0; i + since < history_.size(); ++i) before.push_back(history_[i].excess());
  const Present now = present_of(newest);
  const double off = (now.excess - median_of(std::move(before))) * now.in_flight / now.itl_seconds;
  return std::abs(off) > (since < kLasting ? kOtherTraffic : kOtherForLong) * level_noise_;
}

// That the newest slices are like those just before them.
bool Watcher::is_settled(size_t since) const {
  constexpr size_t kLongEnough = 9;
  constexpr double kAlike = 0.04;
  if (since >= kLongEnough) return true;
  const size_t size = history_.size();
  if (since < kOfMean || size < kOfMean) return false;
  const auto pair = [&](size_t last) {
    return (history_[last].excess() + history_[last - 1].excess()) / 2;
  };
  const TrafficSlice& slice = history_.back().slice;
  const double off = (pair(size - 1) - pair(size - 3)) * slice.in_flight / slice.itl_seconds;
  return std::abs(off) < std::max(kAlike, level_noise_);
}

// Five times four minutes, each one value, against the edge: Student's t of four degrees of
// freedom, 0.1 % on one side. What wanders for less than four minutes counts for what it is.
bool Watcher::is_wrong_for_long(Way way) const {
  constexpr size_t kBlocks = 5;
  constexpr double kStudent = 7.17;
  const std::optional<double> at = edge(way);
  if (!at || history_.size() < kLong) return false;
  std::vector<double> blocks;
  const size_t length = kLong / kBlocks;
  for (size_t first = history_.size() - kLong; first < history_.size(); first += length) {
    double sum = 0;
    for (size_t i = first; i < first + length; ++i) sum += history_[i].excess();
    blocks.push_back(sum / static_cast<double>(length));
  }
  const double beyond = mean_of(blocks) - allowance(*at, {});
  const double error = deviation_of(blocks) / std::sqrt(static_cast<double>(kBlocks));
  return (way == Way::down ? beyond : -beyond) > kStudent * error;
}

void Watcher::change_to(const Present& present, size_t slices, WatchReport& report) {
  report.event = WatchEvent::change;
  report.advice = advise(present);
  report.excess_seconds = present.excess;
  least_noise_ = std::max(kAssumedNoise, level_noise_);
  restart_at(report.advice.batch.value_or(0), slices);
  describe_present(report);
  const Present now = present_of(slices);
  report.itl_target_seconds = target_of(now);
  report.at_opt.reset();
  report.at_limit.reset();
  if (*limit_ > 0) report.at_opt = figures_at(*limit_, now, report);
  if (*report.limit > 0) report.at_limit = figures_at(*report.limit, now, report);
}

void Watcher::decide(Way way, WatchReport& report) {
  constexpr size_t kNewest = 3;  // slices of the new traffic, after it has settled
  const bool is_down = way == Way::down;
  const bool is_evident = (is_down ? sum_down_ : sum_up_) >= kThreshold;
  const size_t since = is_down ? since_down_ : since_up_;
  size_t slices = 0;
  if (is_evident && is_other_traffic(since) && is_settled(since)) {
    slices = std::min(kNewest, history_.size());
  } else if (is_wrong_for_long(way)) {
    slices = history_.size();
  } else {
    return;
  }
  const Present present = present_of(slices);
  if (!is_sure(way, present)) return;
  const int64_t batch = advise(present).batch.value_or(0);
  if (is_down ? batch < *limit_ : batch > *limit_) change_to(present, slices, report);
}

// The first B_opt. A limit that is known to be in force is wrong already where the interval says
// so.
void Watcher::begin(const Present& present, WatchReport& report) {
  is_begun_ = true;
  report.event = WatchEvent::first;
  if (!limit_) {
    limit_ = report.advice.batch.value_or(0);
    return;
  }
  const int64_t batch = report.advice.batch.value_or(0);
  const bool is_down = batch < *limit_ && is_sure(Way::down, present);
  const bool is_up = batch > *limit_ && is_sure(Way::up, present);
  if (is_down || is_up) change_to(present, history_.size(), report);
}

WatchReport Watcher::observe(const TrafficSlice& slice) {
  WatchReport report = report_of(slice);
  report.limit_after = limit_;
  return report;
}

WatchReport Watcher::report_of(const TrafficSlice& slice) {
  WatchReport report;
  seconds_ += slice.seconds;
  report.seconds = seconds_;
  // Not while it looks as if requests had become others: their line would be another one.
  if (is_learning_ && std::max(sum_down_, sum_up_) < kThreshold / 2) {
    learner_.add(slice.in_flight, slice.itl_seconds);
    if (auto learned = learner_.base()) {
      is_learning_ = learned->base_error_seconds > kWellKnown * learned->seconds(0);
      take_base(*std::move(learned));
    }
  }
  history_.push_back({slice, base_ ? base_->seconds(slice.in_flight) : 0});
  if (history_.size() > kLong + kWindow) history_.pop_front();
  describe_present(report);
  report.limit = limit_;
  report.is_known = base_.has_value();
  if (!base_) return report;
  report.provenance = base_->provenance;
  report.source = base_->source;
  learn_noise();
  report.noise = level_noise_;
  const Present present = present_of(std::min(kWindow, history_.size()));
  report.excess_seconds = present.excess;
  report.advice = advise(present);
  if (report.advice.batch) report.at_opt = figures_at(*report.advice.batch, present, report);
  if (limit_ && *limit_ > 0) report.at_limit = figures_at(*limit_, present, report);
  report.itl_target_seconds = target_of(present);
  if (history_.size() < kFirst && !is_begun_) return report;
  if (!is_begun_) {
    begin(present, report);
    return report;
  }
  gather(history_.back());
  report.evidence_down = sum_down_ / kThreshold;
  report.evidence_up = sum_up_ / kThreshold;
  decide(Way::down, report);
  if (report.event == WatchEvent::none) decide(Way::up, report);
  return report;
}

void Watcher::forget() { restart_at(limit_, 0); }

}  // namespace headroom::batch
