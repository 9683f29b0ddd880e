#include "batch/live.h"

#include <algorithm>
#include <cmath>

#include "batch/advisor.h"
#include "batch/curve.h"

namespace headroom::batch {
namespace {

using formats::ServingPoint;

constexpr int kMostRepeats = 3;     // of one batch
constexpr double kUnlikely = 0.05;  // either side of a 90 % interval

// Standard deviations of the logarithm behind a 90 % interval.
double deviation_of(const Interval& interval) {
  constexpr double kNinetyPercent = 1.645;
  return std::max(1e-9, std::log(interval.high / interval.low) / (2 * kNinetyPercent));
}

double normal_below(double deviations) { return 0.5 * std::erfc(-deviations / std::sqrt(2.0)); }

// That the figure is below the bound, were its deviation `doubt` times what it is.
double chance_below(const Interval& interval, double bound, double doubt) {
  return normal_below(std::log(bound / interval.expected) / (doubt * deviation_of(interval)));
}

bool is_settled(double chance) { return chance < kUnlikely || chance > 1 - kUnlikely; }

// What the points say so far.
struct View {
  std::vector<BatchPoint> candidates;  // among which the answer is
  BatchPoint one;
  std::optional<double> itl_target;
  Advice advice;
};

class Loop {
 public:
  Loop(BatchMeter& meter, const LiveOptions& options)
      : meter_(&meter), options_(&options), most_(options.most_batch) {}

  LiveResult run();

 private:
  bool measure(int64_t batch, Care care);
  [[nodiscard]] int times_measured(int64_t batch) const;
  [[nodiscard]] std::optional<View> view() const;
  [[nodiscard]] std::optional<int64_t> next_seed() const;
  LiveResult run_through();
  [[nodiscard]] double chance_of(const BatchPoint& point, const View& view, double doubt) const;
  [[nodiscard]] bool is_worth(const BatchPoint& point, const View& view) const;
  [[nodiscard]] std::optional<int64_t> most_uncertain(const View& view) const;
  [[nodiscard]] bool lacks_largest() const { return times_measured(most_) == 0; }
  [[nodiscard]] bool is_exhausted();

  BatchMeter* meter_;
  const LiveOptions* options_;
  int64_t most_;  // what the server holds at once, as far as it is known
  LiveResult result_;
};

int Loop::times_measured(int64_t batch) const {
  return static_cast<int>(
      std::count_if(result_.measurements.begin(), result_.measurements.end(),
                    [&](const LiveMeasurement& m) { return m.point.batch == batch; }));
}

// False where the loop has to end.
bool Loop::measure(int64_t batch, Care care) {
  std::optional<LiveMeasurement> made;
  for (int attempt = 0; attempt < 2 && !made; ++attempt) {
    auto measured = meter_->measure(batch, care);
    if (!measured) {
      result_.error = std::move(measured).error();
      return false;
    }
    if (!measured->summary.is_void) made = *std::move(measured);
  }
  if (!made) {
    result_.error = Error{ErrorCode::unavailable,
                          "this machine is too busy to drive " + std::to_string(batch) +
                              " streams: its own lag would be what is measured",
                          {},
                          "run it on a machine of its own, near the server"};
    return false;
  }
  if (made->point.batch < batch && made->point.batch < most_) {
    most_ = made->point.batch;
    result_.notes.push_back("with " + std::to_string(batch) + " requests at once, " +
                            std::to_string(most_) +
                            " were in flight and the others waited: the server's own limit, or "
                            "all that its cache holds");
  }
  result_.measurements.push_back(*std::move(made));
  if (auto kept = options_->on_measured(result_.measurements); !kept) {
    result_.error = std::move(kept).error();
    return false;
  }
  return true;
}

std::optional<View> Loop::view() const {
  const auto curve = MeasuredCurve::make(points_of(result_.measurements));
  if (!curve) return std::nullopt;
  View view;
  std::vector<int64_t> limits = usual_limits(1, most_);
  for (const LiveMeasurement& measurement : result_.measurements) {
    limits.push_back(measurement.point.batch);
  }
  std::sort(limits.begin(), limits.end());
  limits.erase(std::unique(limits.begin(), limits.end()), limits.end());
  for (const int64_t limit : limits) view.candidates.push_back(*curve->at(limit));
  view.one = *curve->at(1);
  if (const auto& slo = options_->slo) {
    view.itl_target = slo->seconds ? *slo->seconds
                                   : slo->multiple * curve->at(slo->at_batch)->itl_seconds.expected;
  }
  const BatchingConfigurationAdvisor advisor(
      {.itl_target_seconds = view.itl_target, .min_efficiency = options_->min_efficiency});
  view.advice = advisor.advise(view.candidates, view.one, Bound::measured);
  return view;
}

// What the law begins with: one alone, and what the target refers to or else the usual limit
// nearest to the root of the largest, which is in the middle on the scale of the law.
std::optional<int64_t> Loop::next_seed() const {
  if (times_measured(1) == 0) return 1;
  const auto& slo = options_->slo;
  if (slo && !slo->seconds && slo->at_batch <= most_) {
    return times_measured(slo->at_batch) == 0 ? std::optional(slo->at_batch) : std::nullopt;
  }
  if (result_.measurements.size() > 1) return std::nullopt;
  const double middle = std::log(static_cast<double>(most_)) / 2;
  const std::vector<int64_t> limits = usual_limits(2, most_);
  return *std::min_element(limits.begin(), limits.end(), [&](int64_t a, int64_t b) {
    return std::abs(std::log(static_cast<double>(a)) - middle) <
           std::abs(std::log(static_cast<double>(b)) - middle);
  });
}

// That the batch meets target and efficiency, were all that is not known of it `doubt` times what
// it is.
double Loop::chance_of(const BatchPoint& point, const View& view, double doubt) const {
  const Interval pays = BatchingConfigurationAdvisor::efficiency(point, view.one);
  double chance = 1;
  if (options_->min_efficiency > 0 && point.batch > 1) {
    chance *= 1 - chance_below(pays, options_->min_efficiency, doubt);
  }
  if (view.itl_target) chance *= chance_below(point.itl_seconds, *view.itl_target, doubt);
  return chance;
}

// Whether a measurement of the batch can decide something. One that has been measured is measured
// again only where the repeats that it has left would settle its verdict if its figures stayed.
bool Loop::is_worth(const BatchPoint& point, const View& view) const {
  if (is_settled(chance_of(point, view, 1))) return false;
  const int times = times_measured(point.batch);
  if (times == 0) return true;
  if (times >= kMostRepeats) return false;
  return is_settled(chance_of(point, view, std::sqrt(times / double{kMostRepeats})));
}

// B_opt, if it was not measured; else the candidate whose verdict has the largest variance, among
// those that the interval of B_opt holds and that are worth it.
std::optional<int64_t> Loop::most_uncertain(const View& view) const {
  const Advice& advice = view.advice;
  if (advice.batch && times_measured(*advice.batch) == 0) return advice.batch;
  std::optional<int64_t> best;
  double most = -1;
  for (const BatchPoint& point : view.candidates) {
    if (point.batch < advice.low.value_or(0) || point.batch > advice.high.value_or(0)) continue;
    if (!is_worth(point, view)) continue;
    const double chance = chance_of(point, view, 1);
    if (chance * (1 - chance) <= most) continue;
    most = chance * (1 - chance);
    best = point.batch;
  }
  return best;
}

bool Loop::is_exhausted() {
  const bool is_enough =
      static_cast<int>(result_.measurements.size()) >= options_->most_measurements;
  if (!is_enough && !options_->is_late()) return false;
  result_.notes.emplace_back(is_enough ? "stopped at the most measurements that it may make"
                                       : "stopped at its time limit (--time-limit)");
  result_.is_stopped = true;
  return true;
}

// The batches that were named, each once: what the loop saves is to be seen beside them.
LiveResult Loop::run_through() {
  for (const int64_t batch : options_->batches) {
    if (options_->is_late()) {
      result_.notes.emplace_back("stopped at its time limit (--time-limit)");
      result_.is_stopped = true;
      break;
    }
    // Behind the server's own limit nothing is larger.
    if (batch > most_ && times_measured(most_) > 0) continue;
    if (!measure(batch, Care::full)) break;
  }
  if (const std::optional<View> seen = view()) {
    const Advice& advice = seen->advice;
    result_.is_sure = advice.low == advice.batch && advice.high == advice.batch;
  }
  result_.is_stopped = result_.is_stopped || result_.error.has_value();
  return std::move(result_);
}

LiveResult Loop::run() {
  if (!options_->batches.empty()) return run_through();
  while (true) {
    std::optional<int64_t> next = next_seed();
    Care care = Care::full;
    if (!next) {
      const std::optional<View> seen = view();
      if (seen) next = most_uncertain(*seen);
      if (!next && lacks_largest()) {
        next = most_;
        care = Care::brief;
      }
      // Where there is no view, the answer says why the points make no law.
      if (!next && seen) {
        const Advice& advice = seen->advice;
        result_.is_sure = advice.low == advice.batch && advice.high == advice.batch;
      }
    }
    if (!next || is_exhausted() || !measure(*next, care)) break;
  }
  result_.is_stopped = result_.is_stopped || result_.error.has_value();
  return std::move(result_);
}

}  // namespace

LiveResult measure_live(BatchMeter& meter, const LiveOptions& options) {
  return Loop(meter, options).run();
}

std::vector<ServingPoint> points_of(const std::vector<LiveMeasurement>& measurements) {
  std::vector<ServingPoint> points;
  for (const LiveMeasurement& measurement : measurements) points.push_back(measurement.point);
  return points;
}

ServingPoint point_of(const serving::LoadSummary& summary) {
  ServingPoint point{.batch = summary.concurrency};
  point.throughput_tokens_per_second = summary.throughput_tokens_per_second;
  point.itl_seconds = summary.itl_seconds;
  point.running_mean = summary.running_mean;
  point.kv_share = summary.kv_share;
  point.throughput_error = summary.throughput_error;
  point.itl_error = summary.itl_error;
  // Some wait between two answers anyhow; that a queue stands is told by the server, or by so much
  // less in flight that no prefill explains it.
  const auto asked = static_cast<double>(summary.concurrency);
  constexpr double kQueue = 0.1;
  constexpr double kInFlight = 0.5;
  const bool waits = summary.server_waiting ? *summary.server_waiting > kQueue * asked
                                            : summary.running_mean < kInFlight * asked;
  if (summary.concurrency > 1 && waits) {
    const double running = std::max(summary.running_mean, summary.server_running.value_or(0));
    point.batch = std::clamp<int64_t>(std::llround(running), 1, summary.concurrency);
  }
  return point;
}

}  // namespace headroom::batch
