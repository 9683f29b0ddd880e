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

Result<std::optional<PredictedBest>> best_of(const Predicted& predicted,
                                             const AdvisorOptions& options) {
  HEADROOM_ASSIGN(const BatchPoint one, predicted.curve().at(1));
  std::vector<BatchPoint> points;
  for (const int64_t batch : predicted.curve().candidates()) {
    HEADROOM_ASSIGN(BatchPoint point, predicted.curve().at(batch));
    points.push_back(point);
  }
  PredictedBest best;
  best.advice = BatchingConfigurationAdvisor(options).advise(points, one, Bound::memory);
  if (!best.advice.batch) return std::optional<PredictedBest>();
  best.point = *std::ranges::find(points, *best.advice.batch, &BatchPoint::batch);
  return std::optional(best);
}

}  // namespace headroom::batch
