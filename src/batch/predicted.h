// A model on its devices as `headroom batch` predicts it: steps, and the cache that is left beside
// the weights.
//
// Pure but for what it is given, and which must outlive it; thread-safe; some ten milliseconds to
// make, a tenth of one to answer.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "batch/advisor.h"
#include "batch/curve.h"
#include "device/device.h"
#include "text/json.h"
#include "timing/timing_model.h"

namespace headroom::batch {

class Predicted {
 public:
  static Result<Predicted> make(const text::JsonView& config, const device::Device& device,
                                const timing::DecodeOptions& options, const Workload& workload,
                                const timing::TimingModel& model);

  [[nodiscard]] const timing::DecodePredictor& predictor() const { return *predictor_; }
  [[nodiscard]] const PredictedCurve& curve() const { return *curve_; }
  // What engines have for it on one device; 0 where weights leave nothing.
  [[nodiscard]] Bytes cache() const { return cache_; }
  [[nodiscard]] double cache_tokens() const { return cache_tokens_; }
  // Of the cache on one device.
  [[nodiscard]] double bytes_of_token() const { return bytes_of_token_; }

 private:
  Predicted() = default;
  std::unique_ptr<timing::DecodePredictor> predictor_;
  std::unique_ptr<PredictedCurve> curve_;
  Bytes cache_;
  double cache_tokens_ = 0;
  double bytes_of_token_ = 0;
};

// Measured over predicted.
struct Correction {
  double throughput = 1;
  double itl = 1;
};
[[nodiscard]] BatchPoint corrected(BatchPoint point, const Correction& correction);

// The advisor's answer on a predicted curve; nothing where no candidate meets the target.
struct PredictedBest {
  Advice advice;
  BatchPoint point;
};
Result<std::optional<PredictedBest>> best_of(const Predicted& predicted,
                                             const AdvisorOptions& options,
                                             const Correction& correction);

// The same if the law were at its low, its expected and its high end for certain, in this order.
Result<std::array<std::optional<PredictedBest>, 3>> best_at_ends(const Predicted& predicted,
                                                                 const AdvisorOptions& options,
                                                                 const Correction& correction);

}  // namespace headroom::batch
