#include "batch/predicted.h"

#include <algorithm>

namespace headroom::batch {

Result<Predicted> Predicted::make(const text::JsonView& config, const device::Device& device,
                                  const timing::DecodeOptions& options, const Workload& workload,
                                  const timing::TimingModel& model) {
  Predicted made;
  HEADROOM_ASSIGN(timing::DecodePredictor predictor,
                  timing::DecodePredictor::make(config, device, options, model));
  made.predictor_ = std::make_unique<timing::DecodePredictor>(std::move(predictor));
  if (device.usable_memory.known()) {
    const double left =
        timing::kMemoryShare * static_cast<double>(device.usable_memory.value.count) -
        static_cast<double>(made.predictor_->weights().count);
    made.cache_ = Bytes(static_cast<int64_t>(std::max(0.0, left)));
  }
  made.bytes_of_token_ = static_cast<double>(made.predictor_->kv_of_one().count) /
                         static_cast<double>(options.context);
  made.cache_tokens_ = static_cast<double>(made.cache_.count) / made.bytes_of_token_;
  HEADROOM_ASSIGN(PredictedCurve curve,
                  PredictedCurve::make(*made.predictor_, workload, made.cache_tokens_));
  made.curve_ = std::make_unique<PredictedCurve>(std::move(curve));
  return made;
}

namespace {

struct PredictedPoints {
  BatchPoint one;
  std::vector<BatchPoint> points;
};

Result<PredictedPoints> points_of(const Predicted& predicted, const Correction& correction) {
  PredictedPoints all;
  HEADROOM_ASSIGN(const BatchPoint one, predicted.curve().at(1));
  all.one = corrected(one, correction);
  for (const int64_t batch : predicted.curve().candidates()) {
    HEADROOM_ASSIGN(const BatchPoint point, predicted.curve().at(batch));
    all.points.push_back(corrected(point, correction));
  }
  return all;
}

std::optional<PredictedBest> advised(const PredictedPoints& all, const AdvisorOptions& options) {
  PredictedBest best;
  best.advice = BatchingConfigurationAdvisor(options).advise(all.points, all.one, Bound::memory);
  if (!best.advice.batch) return std::nullopt;
  best.point = *std::ranges::find(all.points, *best.advice.batch, &BatchPoint::batch);
  return best;
}

// A step that is short at this end of the law, and the throughput that it makes.
BatchPoint at_end(BatchPoint point, size_t end) {
  Interval& itl = point.itl_seconds;
  Interval& rate = point.throughput_tokens_per_second;
  const double seconds = std::array{itl.low, itl.expected, itl.high}[end];
  const double tokens = std::array{rate.high, rate.expected, rate.low}[end];
  itl = {seconds, seconds, seconds};
  rate = {tokens, tokens, tokens};
  return point;
}

}  // namespace

BatchPoint corrected(BatchPoint point, const Correction& correction) {
  point.throughput_tokens_per_second =
      product(point.throughput_tokens_per_second, correction.throughput);
  point.itl_seconds = product(point.itl_seconds, correction.itl);
  return point;
}

Result<std::optional<PredictedBest>> best_of(const Predicted& predicted,
                                             const AdvisorOptions& options,
                                             const Correction& correction) {
  HEADROOM_ASSIGN(const PredictedPoints all, points_of(predicted, correction));
  return advised(all, options);
}

Result<std::array<std::optional<PredictedBest>, 3>> best_at_ends(const Predicted& predicted,
                                                                 const AdvisorOptions& options,
                                                                 const Correction& correction) {
  HEADROOM_ASSIGN(const PredictedPoints all, points_of(predicted, correction));
  std::array<std::optional<PredictedBest>, 3> best;
  for (size_t end = 0; end < best.size(); ++end) {
    PredictedPoints certain{at_end(all.one, end), {}};
    for (const BatchPoint& point : all.points) certain.points.push_back(at_end(point, end));
    best[end] = advised(certain, options);
  }
  return best;
}

}  // namespace headroom::batch
