#include "bench/decode.h"

#include <algorithm>
#include <cmath>

#include "timing/checkpoint_type.h"

namespace headroom::bench {

namespace {

// Powers of two to what the memory holds, and that.
std::vector<int64_t> usual_batches(int64_t largest) {
  const int64_t most = std::clamp<int64_t>(largest, 1, timing::kMostBatch);
  std::vector<int64_t> batches;
  for (int64_t batch = 1; batch <= most; batch *= 2) batches.push_back(batch);
  if (most > batches.back()) batches.push_back(most);
  return batches;
}

const DecodeStep* step_of(const std::vector<DecodeStep>& steps, int64_t batch) {
  const auto found = std::find_if(steps.begin(), steps.end(),
                                  [&](const DecodeStep& step) { return step.batch == batch; });
  return found == steps.end() ? nullptr : &*found;
}

// measured = offset + slope * predicted, with the least squared relative error.
struct Line {
  double offset = 0;
  double slope = 1;
};

Result<Line> line_through(const std::vector<MeasuredStep>& points,
                          const std::vector<DecodeStep>& steps) {
  double uu = 0, uv = 0, vv = 0, u = 0, v = 0;
  for (const MeasuredStep& point : points) {
    const DecodeStep* step = step_of(steps, point.batch);
    HEADROOM_CHECK(step != nullptr, "points are among the steps");
    const double a = 1 / point.seconds;
    const double b = step->step.seconds / point.seconds;
    uu += a * a;
    uv += a * b;
    vv += b * b;
    u += a;
    v += b;
  }
  const double determinant = uu * vv - uv * uv;
  const Line line{(u * vv - v * uv) / determinant, (uu * v - uv * u) / determinant};
  if (!(determinant > 1e-12 * uu * vv) || !(line.slope > 0) || !std::isfinite(line.offset)) {
    return Error{ErrorCode::bad_input,
                 "the measured steps do not grow with the predicted ones",
                 {},
                 "give points of this model on this device, at two batches or more"};
  }
  return line;
}

Result<void> correct(std::vector<DecodeStep>& steps, const std::vector<MeasuredStep>& points) {
  HEADROOM_ASSIGN(const Line line, line_through(points, steps));
  const auto [least, most] = std::minmax_element(
      points.begin(), points.end(), [](const auto& a, const auto& b) { return a.batch < b.batch; });
  for (DecodeStep& step : steps) {
    const double corrected = line.offset + line.slope * step.step.seconds;
    if (!(corrected > 0)) continue;  // far below the points: the prediction stands
    const bool is_inside = step.batch >= least->batch && step.batch <= most->batch;
    const double below =
        is_inside ? std::exp(-kCorrectedHalfWidth) : step.step.low_seconds / step.step.seconds;
    const double above =
        is_inside ? std::exp(kCorrectedHalfWidth) : step.step.high_seconds / step.step.seconds;
    step.step = {corrected * below, corrected, corrected * above};
    step.provenance = is_inside ? Provenance::calibrated : Provenance::extrapolated;
  }
  return {};
}

Error usage(std::string words) { return Error{ErrorCode::usage, std::move(words), {}, {}}; }

Result<void> check(const DecodeQuestion& question) {
  HEADROOM_TRY(check_context_and_batches(question.context, question.batches));
  if (question.points.size() == 1 || question.points.size() > kMostBatches) {
    return usage("--points takes from 2 to 64 measured steps");
  }
  for (const MeasuredStep& point : question.points) {
    if (point.batch < 1 || point.batch > kMostBatch || !(point.seconds > 0) ||
        !(point.seconds < 1e6)) {
      return usage("a point has a batch from 1 to 65536, and a time");
    }
  }
  return {};
}

}  // namespace

double plateau_bytes_per_second(const std::vector<DecodeStep>& steps) {
  double most = 0;
  for (const DecodeStep& step : steps) {
    if (step.fits) most = std::max(most, step.attention.bytes_per_second());
  }
  return most;
}

std::optional<int64_t> saturation_batch(const std::vector<DecodeStep>& steps) {
  // What the largest batch alone reaches is no plateau: it may grow further.
  const auto last =
      std::find_if(steps.rbegin(), steps.rend(), [](const DecodeStep& step) { return step.fits; });
  if (std::distance(last, steps.rend()) < 3) return std::nullopt;
  const double plateau = plateau_bytes_per_second(steps);
  if (!(plateau > 0)) return std::nullopt;
  for (const DecodeStep& step : steps) {
    if (&step == &*last) break;
    if (step.attention.bytes_per_second() >= kSaturated * plateau) return step.batch;
  }
  return std::nullopt;
}

Result<void> check_context_and_batches(int64_t context, const std::vector<int64_t>& batches) {
  if (context < 2 || context > kMostContext) {
    return usage("--context goes from 2 to 16777216 tokens");
  }
  if (batches.size() > kMostBatches) return usage("--batches takes 64 at most");
  for (const int64_t batch : batches) {
    if (batch < 1 || batch > kMostBatch) return usage("a batch goes from 1 to 65536 sequences");
  }
  return {};
}

Result<DecodeAnswer> predict_decode(const text::JsonView& config, const DecodeQuestion& question,
                                    const timing::TimingModel& model) {
  HEADROOM_TRY(check(question));
  timing::DecodeVariant variant{.engine = question.engine_law};
  HEADROOM_ASSIGN(const auto type, timing::checkpoint_type_of(config));
  if (type) timing::set_weight_type(*type, variant);
  const timing::DecodeOptions options{
      .context = question.context, .weights = question.weights, .variant = variant};
  HEADROOM_ASSIGN(const timing::DecodePredictor predictor,
                  timing::DecodePredictor::make(config, question.device, options, model));
  DecodeAnswer answer;
  answer.model = question.model;
  answer.device = question.device.name;
  answer.context = question.context;
  answer.points = question.points.size();
  answer.dtype = std::string(op::dtype_name(question.weights));
  answer.checkpoint_type = type;
  answer.engine = predictor.engine().name;
  answer.engine_source = predictor.engine().source;
  answer.least_judged_seconds = predictor.engine().least_step_seconds;
  answer.is_host_of_gpus =
      question.device.vendor == device::Vendor::cpu && predictor.engine().device.empty();
  answer.weights = predictor.weights();
  answer.largest_batch = predictor.largest_batch();
  answer.peaks = std::string(name_of(question.device.bandwidth.provenance));
  answer.peak_bytes_per_second = predictor.peak_bytes_per_second();
  answer.peak_flops_per_second = predictor.peak_flops_per_second();
  std::vector<int64_t> batches = question.batches;
  if (batches.empty()) batches = usual_batches(answer.largest_batch);
  for (const MeasuredStep& point : question.points) batches.push_back(point.batch);
  std::sort(batches.begin(), batches.end());
  batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
  for (const int64_t batch : batches) {
    HEADROOM_ASSIGN(DecodeStep step, predictor.step(batch));
    answer.steps.push_back(std::move(step));
  }
  if (!question.points.empty()) HEADROOM_TRY(correct(answer.steps, question.points));
  answer.saturation_batch = saturation_batch(answer.steps);
  return answer;
}

}  // namespace headroom::bench
