#include "batch/curve.h"

#include <algorithm>
#include <cmath>

#include "serving/engine_simulator.h"

namespace headroom::batch {
// The limits that people try: powers of two, and the middle between two of them.
std::vector<int64_t> usual_limits(int64_t least, int64_t most) {
  std::vector<int64_t> limits;
  for (int64_t power = 1; power <= most; power *= 2) {
    if (power >= least) limits.push_back(power);
    const int64_t middle = power + power / 2;
    if (power >= 2 && middle >= least && middle <= most) limits.push_back(middle);
  }
  return limits;
}

namespace {

using formats::ServingPoint;

// By batch; several of one batch become their mean.
std::vector<ServingPoint> merged(std::vector<ServingPoint> points) {
  std::stable_sort(points.begin(), points.end(),
                   [](const auto& a, const auto& b) { return a.batch < b.batch; });
  // Of one measurement of a batch, as its repeats tell it, relative to their mean: the next run is
  // one more of them.
  const auto deviation = [&](size_t first, size_t last, double ServingPoint::*field) {
    double sum = 0;
    for (size_t i = first; i < last; ++i) sum += points[i].*field;
    const auto count = static_cast<double>(last - first);
    double squares = 0;
    for (size_t i = first; i < last; ++i) squares += std::pow(points[i].*field - sum / count, 2);
    return count > 1 && sum > 0 ? std::sqrt(squares / (count - 1)) * count / sum : 0.0;
  };
  const auto widen = [](std::optional<double>& error, double least) {
    if (least > 0) error = std::max(error.value_or(0), least);
  };
  std::vector<ServingPoint> result;
  for (size_t first = 0; first < points.size();) {
    size_t last = first;
    while (last < points.size() && points[last].batch == points[first].batch) ++last;
    const auto count = static_cast<double>(last - first);
    ServingPoint mean{.batch = points[first].batch};
    for (size_t i = first; i < last; ++i) {
      mean.throughput_tokens_per_second += points[i].throughput_tokens_per_second / count;
      mean.itl_seconds += points[i].itl_seconds / count;
      const auto add = [&](std::optional<double>& sum, const std::optional<double>& value) {
        if (value) sum = sum.value_or(0) + *value;
      };
      // Of a mean of `count`: the root of the sum of squares over it. Unknown where one is.
      const auto join = [&](std::optional<double>& error, const std::optional<double>& other) {
        error = (i == first || error) && other
                    ? std::optional(std::hypot(error.value_or(0), *other / count))
                    : std::nullopt;
      };
      join(mean.throughput_error, points[i].throughput_error);
      join(mean.itl_error, points[i].itl_error);
      add(mean.running_mean, points[i].running_mean);
      add(mean.kv_share, points[i].kv_share);
    }
    const auto divide = [&](std::optional<double>& sum, auto field) {
      const auto known =
          std::count_if(points.begin() + static_cast<ptrdiff_t>(first),
                        points.begin() + static_cast<ptrdiff_t>(last),
                        [&](const ServingPoint& p) { return (p.*field).has_value(); });
      if (sum) *sum /= static_cast<double>(known);
    };
    widen(mean.throughput_error,
          deviation(first, last, &ServingPoint::throughput_tokens_per_second));
    widen(mean.itl_error, deviation(first, last, &ServingPoint::itl_seconds));
    divide(mean.running_mean, &ServingPoint::running_mean);
    divide(mean.kv_share, &ServingPoint::kv_share);
    result.push_back(mean);
    first = last;
  }
  return result;
}

double running_of(const ServingPoint& point) {
  return point.running_mean.value_or(static_cast<double>(point.batch));
}

// On the lines between neighbours, at the ends held.
double interpolated(const std::vector<std::pair<double, double>>& knots, double x) {
  const auto above = std::lower_bound(knots.begin(), knots.end(), x,
                                      [](const auto& knot, double at) { return knot.first < at; });
  if (above == knots.begin()) return above->second;
  if (above == knots.end()) return knots.back().second;
  const auto below = std::prev(above);
  const double part = (x - below->first) / (above->first - below->first);
  return below->second + part * (above->second - below->second);
}

Interval around(double value, const std::optional<double>& error) {
  const double spread = std::exp(1.645 * std::max(StepLaw::kNoise, error.value_or(0)));
  return {value / spread, value, value * spread};
}

// running / seconds: the longer the step, the lower the throughput.
Interval rate_of(double running, const Interval& seconds) {
  return {running / seconds.high, running / seconds.expected, running / seconds.low};
}

}  // namespace

Result<StepForm> StepForm::of(const PredictedCurve& curve,
                              const std::vector<ServingPoint>& points) {
  StepForm form;
  double most = 1;
  for (const ServingPoint& point : points) most = std::max(most, running_of(point));
  std::vector<std::pair<double, double>> steps;
  for (const int64_t batch : usual_limits(1, timing::kMostBatch)) {
    if (batch > 1 && static_cast<double>(steps.back().first) > 2 * most) break;
    HEADROOM_ASSIGN(const BatchPoint point, curve.at(batch));
    const double seconds = point.itl_seconds.expected;
    if (!steps.empty() && !(seconds > steps.back().second)) return form;
    steps.emplace_back(static_cast<double>(batch), seconds);
  }
  if (!(most > 1)) return form;
  const double first = steps.front().second;
  const double last = interpolated(steps, most);
  for (const auto& [running, seconds] : steps) {
    form.knots_.emplace_back(running, 1 + (most - 1) * (seconds - first) / (last - first));
  }
  return form;
}

double StepForm::counted(double running) const {
  if (knots_.size() < 2 || running <= 1) return running;
  const auto& [last, counted] = knots_.back();
  if (running < last) return interpolated(knots_, running);
  const auto& [before, less] = knots_[knots_.size() - 2];
  return counted + (running - last) * (counted - less) / (last - before);
}

bool StepForm::is_straight() const {
  constexpr double kOnTheLine = 0.1;  // of the last one's
  return std::ranges::all_of(knots_, [&](const auto& knot) {
    return std::abs(knot.second - knot.first) <= kOnTheLine * knots_.back().first;
  });
}

Result<MeasuredCurve> MeasuredCurve::make(const std::vector<ServingPoint>& points,
                                          const StepForm& form) {
  std::vector<ServingPoint> by_batch = merged(points);
  std::vector<LawPoint> rates;
  std::vector<LawPoint> itls;
  for (const ServingPoint& point : by_batch) {
    const double running = running_of(point);
    rates.push_back({form.counted(running), running / point.throughput_tokens_per_second,
                     point.throughput_error.value_or(0)});
    itls.push_back({form.counted(running), point.itl_seconds, point.itl_error.value_or(0)});
  }
  HEADROOM_ASSIGN(StepLaw rate, StepLaw::fit(rates));
  HEADROOM_ASSIGN(StepLaw itl, StepLaw::fit(itls));
  MeasuredCurve curve(std::move(rate), std::move(itl));
  curve.points_ = std::move(by_batch);
  curve.form_ = form;
  return curve;
}

double MeasuredCurve::running_at(int64_t batch) const {
  // Of the limit that is in flight. A run of so many requests drains at its end for about as long
  // as one request takes, so what is missing of the limit grows in proportion to it.
  std::vector<std::pair<double, double>> shares;
  for (const ServingPoint& point : points_) {
    const auto limit = static_cast<double>(point.batch);
    shares.emplace_back(limit, running_of(point) / limit);
  }
  const auto limit = static_cast<double>(batch);
  return limit * interpolated(shares, limit);
}

std::optional<double> MeasuredCurve::kv_share_at(double running) const {
  std::vector<std::pair<double, double>> of_one;  // share that one sequence takes
  for (const ServingPoint& point : points_) {
    if (point.kv_share) of_one.emplace_back(running_of(point), *point.kv_share / running_of(point));
  }
  if (of_one.empty()) return std::nullopt;
  return running * interpolated(of_one, running);
}

Result<BatchPoint> MeasuredCurve::at(int64_t batch) const {
  HEADROOM_CHECK(batch >= 1 && batch <= formats::kMostServingBatch, "a limit of sequences");
  BatchPoint point{.batch = batch};
  const auto known = std::find_if(points_.begin(), points_.end(),
                                  [&](const ServingPoint& p) { return p.batch == batch; });
  if (known != points_.end()) {
    point.running = running_of(*known);
    point.throughput_tokens_per_second =
        around(known->throughput_tokens_per_second, known->throughput_error);
    point.itl_seconds = around(known->itl_seconds, known->itl_error);
    point.kv_share = known->kv_share ? known->kv_share : kv_share_at(point.running);
    point.provenance = Provenance::measured;
    return point;
  }
  point.running = running_at(batch);
  const double counted = form_.counted(point.running);
  point.throughput_tokens_per_second = rate_of(point.running, rate_.seconds(counted));
  point.itl_seconds = itl_.seconds(counted);
  point.kv_share = kv_share_at(point.running);
  const bool is_inside = batch > points_.front().batch && batch < points_.back().batch;
  point.provenance = is_inside ? Provenance::interpolated : Provenance::extrapolated;
  return point;
}

std::vector<int64_t> MeasuredCurve::candidates() const {
  std::vector<int64_t> limits;
  for (size_t i = 0; i < points_.size(); ++i) {
    limits.push_back(points_[i].batch);
    if (i + 1 == points_.size() || points_[i + 1].batch <= 2 * points_[i].batch) continue;
    for (const int64_t limit : usual_limits(points_[i].batch + 1, points_[i + 1].batch - 1)) {
      limits.push_back(limit);
    }
  }
  return limits;
}

namespace {

// Tokens of an iteration: what the simulated engine takes.
const int64_t kIterationTokens = serving::EngineLimits{}.max_num_batched_tokens;

Interval plus(const Interval& a, const Interval& b) {
  return {a.low + b.low, a.expected + b.expected, a.high + b.high};
}

// Beyond them lines go on: of the rows of many prompts at once, and of the longest prompt, whose
// attention grows with its square.
constexpr int64_t kMostRows = 32768;
constexpr int64_t kMostPrompt = 1'048'576;

std::array<double, 3> ends_of(const timing::TimeInterval& time) {
  return {time.low_seconds, time.seconds, time.high_seconds};
}

Result<std::array<serving::PrefillLaw, 3>> prefill_laws_of(
    const timing::DecodePredictor& predictor) {
  std::array<std::vector<serving::RowKnot>, 3> rows;
  std::array<std::vector<serving::PromptKnot>, 3> attention;
  for (const int64_t count : usual_limits(1, kMostPrompt)) {
    HEADROOM_ASSIGN(const timing::TimeInterval of_prompt, predictor.prompt_attention(count));
    for (size_t end = 0; end < attention.size(); ++end) {
      attention[end].push_back({static_cast<double>(count), ends_of(of_prompt)[end]});
    }
    if (count > kMostRows) continue;
    HEADROOM_ASSIGN(const timing::TimeInterval of_rows, predictor.rows(count));
    for (size_t end = 0; end < rows.size(); ++end) {
      rows[end].push_back({static_cast<double>(count), ends_of(of_rows)[end]});
    }
  }
  std::array<serving::PrefillLaw, 3> laws;
  for (size_t end = 0; end < laws.size(); ++end) {
    laws[end] = serving::PrefillLaw(std::move(rows[end]), std::move(attention[end]));
  }
  return laws;
}

}  // namespace

Result<PredictedCurve> PredictedCurve::make(const timing::DecodePredictor& predictor,
                                            const Workload& workload, double cache_tokens) {
  PredictedCurve curve(predictor, workload, cache_tokens);
  HEADROOM_ASSIGN(curve.prompts_, prefill_laws_of(predictor));
  HEADROOM_ASSIGN(const timing::DecodeStep one, predictor.step(1));
  const double other = 1 - one.attention.time.seconds / one.parts_seconds();
  curve.reading_ = product({one.step.low_seconds, one.step.seconds, one.step.high_seconds}, other);
  return curve;
}

bool PredictedCurve::has_chunked_prefill() const {
  return predictor_->variant().has_chunked_prefill && !predictor_->engine().reads_prompts_whole;
}

Result<timing::DecodeStep> PredictedCurve::step(int64_t batch) const {
  const int64_t stages = predictor_->variant().pipeline_parallel;
  HEADROOM_ASSIGN(timing::DecodeStep step, predictor_->step((batch + stages - 1) / stages));
  step.batch = batch;
  step.kv_cache = predictor_->kv_of_one() * batch;
  return step;
}

Interval PredictedCurve::prompt_seconds(int64_t batch, bool is_chunked) const {
  const int64_t stages = predictor_->variant().pipeline_parallel;
  const double prompt = std::max(1.0, workload_.input_mean);
  const serving::PromptsMet met{
      static_cast<double>(batch) / workload_.output_mean / static_cast<double>(stages), prompt,
      (batch + stages - 1) / stages};
  if (is_chunked) {
    return {mean_seconds_in_pieces(prompts_[0], met, kIterationTokens),
            mean_seconds_in_pieces(prompts_[1], met, kIterationTokens),
            mean_seconds_in_pieces(prompts_[2], met, kIterationTokens)};
  }
  const auto most =
      static_cast<int64_t>(std::max(1.0, static_cast<double>(kIterationTokens) / prompt));
  return {mean_seconds_whole(prompts_[0], met, most, reading_.low),
          mean_seconds_whole(prompts_[1], met, most, reading_.expected),
          mean_seconds_whole(prompts_[2], met, most, reading_.high)};
}

Result<Interval> PredictedCurve::token_seconds(int64_t batch, bool is_chunked) const {
  HEADROOM_ASSIGN(const timing::DecodeStep step, this->step(batch));
  const Interval decode{step.step.low_seconds, step.step.seconds, step.step.high_seconds};
  return plus(decode, prompt_seconds(batch, is_chunked));
}

Result<BatchPoint> PredictedCurve::at(int64_t batch) const {
  HEADROOM_ASSIGN(const Interval seconds, token_seconds(batch, has_chunked_prefill()));
  const auto running = static_cast<double>(batch);
  BatchPoint point{.batch = batch, .running = running};
  point.throughput_tokens_per_second = rate_of(running, seconds);
  point.itl_seconds = seconds;
  if (cache_tokens_ > 0) point.kv_share = kv_tokens_needed(running, workload_) / cache_tokens_;
  point.provenance = Provenance::extrapolated;
  return point;
}

Result<Interval> PredictedCurve::chunked_throughput(int64_t batch) const {
  HEADROOM_ASSIGN(const Interval seconds, token_seconds(batch, true));
  return rate_of(static_cast<double>(batch), seconds);
}

Result<Interval> PredictedCurve::prefill_share(int64_t batch) const {
  HEADROOM_ASSIGN(const Interval all, token_seconds(batch, has_chunked_prefill()));
  const Interval prompts = prompt_seconds(batch, has_chunked_prefill());
  return Interval{prompts.low / all.low, prompts.expected / all.expected, prompts.high / all.high};
}

std::vector<int64_t> PredictedCurve::candidates() const {
  const int64_t most = std::min<int64_t>(predictor_->largest_batch(), 4096);
  std::vector<int64_t> limits = usual_limits(1, most);
  std::erase_if(limits, [&](int64_t limit) {
    return cache_tokens_ > 0 &&
           kv_tokens_needed(static_cast<double>(limit), workload_) > cache_tokens_;
  });
  return limits;
}

Result<double> PredictedCurve::half_point() const {
  const int64_t most = std::max<int64_t>(4, std::min<int64_t>(predictor_->largest_batch(), 4096));
  const int64_t middle = std::llround(std::sqrt(static_cast<double>(most)));
  HEADROOM_ASSIGN(const BatchPoint one, at(1));
  HEADROOM_ASSIGN(const BatchPoint some, at(middle));
  HEADROOM_ASSIGN(const BatchPoint many, at(most));
  const double first = one.itl_seconds.expected;
  const double slope = (many.itl_seconds.expected - first) / static_cast<double>(most - 1);
  const double line = first + slope * static_cast<double>(middle - 1);
  // A mixture of experts wakes more of them first: its steps are on no line.
  constexpr double kOnTheLine = 0.1;
  if (std::abs(some.itl_seconds.expected / line - 1) > kOnTheLine) return 0.0;
  return slope > 0 ? (first - slope) / slope : 0.0;
}

int64_t mean_context(const Workload& workload) {
  const double most = static_cast<double>(timing::kMostContext);
  return std::llround(std::clamp(workload.context_mean, 2.0, most));
}

}  // namespace headroom::batch
