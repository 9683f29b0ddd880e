// What a server gives at each limit of its batch: measured, from the law through measurements, or
// predicted for a model on a device.
//
// A curve is made once and asked batch by batch. Thread-safe once made.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/provenance.h"
#include "base/result.h"
#include "batch/step_law.h"
#include "batch/workload.h"
#include "formats/serving_points.h"
#include "serving/prefill_law.h"
#include "timing/decode_step.h"

namespace headroom::batch {

struct BatchPoint {
  int64_t batch = 1;   // the limit
  double running = 1;  // sequences in flight on average
  Interval throughput_tokens_per_second{};
  Interval itl_seconds{};  // mean time between tokens
  std::optional<double> kv_share =
      std::nullopt;  // of the key-value cache that the server has; may pass 1
  Provenance provenance = Provenance::measured;
};

class ServingCurve {
 public:
  virtual ~ServingCurve() = default;
  // An Error where the device lacks a figure. REQUIRES: 1 <= batch <= 65536.
  [[nodiscard]] virtual Result<BatchPoint> at(int64_t batch) const = 0;
  // In increasing order: the limits among which to choose.
  [[nodiscard]] virtual std::vector<int64_t> candidates() const = 0;
  // The half point a / b of the step law; 0 or less where steps are on no line through it.
  [[nodiscard]] virtual Result<double> half_point() const = 0;
};

class PredictedCurve;

// Sequences as the line of a step law counts them: as many as make predicted steps grow evenly, so
// that a curve through two measured points is bent between them as the prediction is (a mixture's
// batch first wakes experts). None: as they are.
class StepForm {
 public:
  StepForm() = default;
  // 1 and the most of the points are counted as they are; far beyond it the last slope holds. None
  // where predicted steps do not grow. An Error where the device lacks a figure.
  static Result<StepForm> of(const PredictedCurve& curve,
                             const std::vector<formats::ServingPoint>& points);
  [[nodiscard]] double counted(double running) const;
  // Whether it is near a line through both ends.
  [[nodiscard]] bool is_straight() const;

 private:
  std::vector<std::pair<double, double>> knots_;  // running, as counted; ascending
};

// Points of one server. A limit that was measured keeps its figures (the mean of several); another
// has the law's. Candidates are the measured limits and, where two neighbours are more than a
// factor of two apart, the usual ones between them: nobody measured those more finely, so the law
// may say.
class MeasuredCurve : public ServingCurve {
 public:
  // An Error where the points make no law. `form`: of the prediction, where there is one.
  static Result<MeasuredCurve> make(const std::vector<formats::ServingPoint>& points,
                                    const StepForm& form = {});
  [[nodiscard]] Result<BatchPoint> at(int64_t batch) const override;
  [[nodiscard]] std::vector<int64_t> candidates() const override;
  [[nodiscard]] Result<double> half_point() const override {
    return form_.is_straight() ? rate_.half_point() : 0.0;
  }

 private:
  MeasuredCurve(StepLaw rate, StepLaw itl) : rate_(std::move(rate)), itl_(std::move(itl)) {}
  [[nodiscard]] double running_at(int64_t batch) const;
  [[nodiscard]] std::optional<double> kv_share_at(double running) const;

  std::vector<formats::ServingPoint> points_;  // by batch, one each
  StepLaw rate_;  // of the seconds in which every running sequence gets a token, prefills included
  StepLaw itl_;
  StepForm form_;
};

// A decode step at the mean context of what is in flight, and the prompts: each sequence is read
// once for every answer that it writes. In pieces beside what decodes they add rows to its step
// (serving/prefill_law.h); read whole they have iterations of their own, as many prompts in one as
// have come meanwhile, and each reads the weights once more. This is the closed loop of the
// simulated engine (serving/engine_simulator.h), in means. What is running is the limit. Stages of
// a pipeline each have another part of what is running in hand: a token takes one step of such a
// part through all of them (what they hand on to each other is not counted).
class PredictedCurve : public ServingCurve {
 public:
  // `predictor` must outlive it. `cache_tokens`: what the whole key-value cache holds.
  static Result<PredictedCurve> make(const timing::DecodePredictor& predictor,
                                     const Workload& workload, double cache_tokens);
  // Whether prompts are read in pieces beside decoding (chunked prefill).
  [[nodiscard]] bool has_chunked_prefill() const;
  // Tokens a second where they are: what the curve of an engine without is held against.
  [[nodiscard]] Result<Interval> chunked_throughput(int64_t batch) const;
  // The decode step that each of so many running sequences gets a token in: of the part of them
  // that a pipeline's stages have in hand at once. Its batch is theirs all together.
  [[nodiscard]] Result<timing::DecodeStep> step(int64_t batch) const;
  // The part of a step's time that reading prompts adds.
  [[nodiscard]] Result<Interval> prefill_share(int64_t batch) const;
  // What prompts take at the low, the expected and the high end of the laws.
  [[nodiscard]] const std::array<serving::PrefillLaw, 3>& prefill_laws() const { return prompts_; }
  [[nodiscard]] Result<BatchPoint> at(int64_t batch) const override;
  [[nodiscard]] std::vector<int64_t> candidates() const override;
  [[nodiscard]] Result<double> half_point() const override;

 private:
  PredictedCurve(const timing::DecodePredictor& predictor, const Workload& workload,
                 double cache_tokens)
      : predictor_(&predictor), workload_(workload), cache_tokens_(cache_tokens) {}
  // Between two tokens of each of so many.
  [[nodiscard]] Result<Interval> token_seconds(int64_t batch, bool is_chunked) const;
  // Of it, what prompts take.
  [[nodiscard]] Interval prompt_seconds(int64_t batch, bool is_chunked) const;
  const timing::DecodePredictor* predictor_;
  Workload workload_;
  double cache_tokens_;
  std::array<serving::PrefillLaw, 3> prompts_;
  Interval reading_;  // of an iteration with prompts alone, but for these
};

// The limits that people try, from `least` to `most`: powers of two, and the middle between two.
[[nodiscard]] std::vector<int64_t> usual_limits(int64_t least, int64_t most);

// Whole tokens that a sequence in flight holds on average, 2 at least.
[[nodiscard]] int64_t mean_context(const Workload& workload);

}  // namespace headroom::batch
