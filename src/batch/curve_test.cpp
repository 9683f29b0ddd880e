#include "batch/curve.h"

#include <gtest/gtest.h>

#include <cmath>

#include "batch/predicted.h"
#include "device/catalogue.h"
#include "model/builtin.h"

namespace headroom::batch {
namespace {

formats::ServingPoint measured(int64_t batch, double running) {
  const double seconds = 4e-3 + 1e-4 * running;
  return {.batch = batch,
          .throughput_tokens_per_second = running / seconds,
          .itl_seconds = seconds,
          .running_mean = running,
          .kv_share = running / 600};
}

TEST(MeasuredCurve, WhatWasMeasuredIsKept) {
  const auto curve = *MeasuredCurve::make({measured(512, 420), measured(1, 1), measured(32, 31)});
  const BatchPoint point = *curve.at(512);
  EXPECT_EQ(point.provenance, Provenance::measured);
  EXPECT_EQ(point.running, 420);
  EXPECT_DOUBLE_EQ(point.throughput_tokens_per_second.expected, 420 / 46e-3);
  EXPECT_DOUBLE_EQ(*point.kv_share, 0.7);
}

TEST(MeasuredCurve, BetweenPointsTheLawAndWhatIsInFlight) {
  const auto curve = *MeasuredCurve::make({measured(512, 420), measured(1, 1), measured(32, 31)});
  const BatchPoint point = *curve.at(128);
  EXPECT_EQ(point.provenance, Provenance::interpolated);
  EXPECT_LT(point.running, 128);
  EXPECT_NEAR(point.itl_seconds.expected, 4e-3 + 1e-4 * point.running, 1e-6);
  EXPECT_NEAR(*point.kv_share, point.running / 600, 1e-9);
  EXPECT_EQ(curve.at(1024)->provenance, Provenance::extrapolated);
}

TEST(MeasuredCurve, CandidatesFillOnlyWhereNobodyMeasuredFinely) {
  const auto curve = *MeasuredCurve::make({measured(1, 1), measured(64, 64), measured(100, 100)});
  EXPECT_EQ(curve.candidates(),
            (std::vector<int64_t>{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 100}));
}

// A mixture's batch wakes experts first, so that its steps are on no line: of a server that is a
// third slower than predicted both ends tell the middle.
TEST(MeasuredCurve, IsBentAsThePredictionIs) {
  const auto resolved = *model::resolve_model("Qwen/Qwen3-30B-A3B");
  const auto device = *device::DeviceCatalogue::built_in().find("h200");
  const auto timing = timing::TimingModel::built_in();
  const Workload workload = workload_of(1024, 1024, 0);
  const auto predicted = *Predicted::make(resolved.view(), device,
                                          {.context = mean_context(workload)}, workload, timing);
  const auto at = [&](int64_t batch) {
    const double seconds = 4.0 / 3 * predicted.curve().at(batch)->itl_seconds.expected;
    return formats::ServingPoint{
        .batch = batch,
        .throughput_tokens_per_second = static_cast<double>(batch) / seconds,
        .itl_seconds = seconds};
  };
  const auto form = *StepForm::of(predicted.curve(), {at(1), at(256)});
  EXPECT_FALSE(form.is_straight());
  EXPECT_NEAR(form.counted(256), 256, 1e-6);
  EXPECT_TRUE(StepForm().is_straight());
  const auto bent = *MeasuredCurve::make({at(1), at(256)}, form);
  const auto line = *MeasuredCurve::make({at(1), at(256)});
  const double middle = at(16).itl_seconds;
  EXPECT_NEAR(bent.at(16)->itl_seconds.expected, middle, 0.02 * middle);
  EXPECT_LT(line.at(16)->itl_seconds.expected, 0.8 * middle);
  EXPECT_EQ(*bent.half_point(), 0);
}

TEST(MeasuredCurve, SeveralRunsOfOneLimitAreTheirMean) {
  auto twice = measured(64, 60);
  twice.throughput_tokens_per_second *= 1.02;
  twice.kv_share.reset();
  const auto curve = *MeasuredCurve::make({measured(1, 1), measured(64, 60), twice});
  EXPECT_NEAR(curve.at(64)->throughput_tokens_per_second.expected, 1.01 * 60 / 10e-3, 1e-6);
  EXPECT_DOUBLE_EQ(*curve.at(64)->kv_share, 0.1);
}

// The next run is one more of them: 2500, 3100 and 2700 deviate by 11 %.
TEST(MeasuredCurve, SeveralRunsOfOneLimitSayHowNoisyItIs) {
  std::vector<formats::ServingPoint> points;
  for (const double rate : {2500.0, 3100.0, 2700.0})
    points.push_back({.batch = 64, .throughput_tokens_per_second = rate, .itl_seconds = 64 / rate});
  points.push_back({.batch = 1, .throughput_tokens_per_second = 100, .itl_seconds = 0.01});
  const auto curve = MeasuredCurve::make(points);
  ASSERT_TRUE(curve);
  const Interval rate = curve->at(64)->throughput_tokens_per_second;
  EXPECT_NEAR(rate.expected, 2766.7, 0.1);
  EXPECT_NEAR(std::log(rate.high / rate.expected), 1.645 * 305.5 / 2766.7, 1e-3);
  EXPECT_LT(rate.low, 2500);
  EXPECT_GT(rate.high, 3100);
  EXPECT_GT(curve->at(32)->throughput_tokens_per_second.high /
                curve->at(32)->throughput_tokens_per_second.low,
            1.1);
}

// A model on one device, and what it points to.
struct Asked {
  Asked(const char* model, const char* name, const Workload& workload)
      : resolved(*model::resolve_model(model)),
        device(*device::DeviceCatalogue::built_in().find(name)),
        predicted(*Predicted::make(resolved.view(), device, {.context = mean_context(workload)},
                                   workload, timing)) {}
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;
  [[nodiscard]] const PredictedCurve& curve() const { return predicted.curve(); }

  model::ResolvedModel resolved;
  device::Device device;
  timing::TimingModel timing = timing::TimingModel::built_in();
  Predicted predicted;
};

// Short answers: nearly all that is computed are prompts, and no card computes faster than it can.
TEST(PredictedCurve, PromptsTakeTheirArithmetic) {
  constexpr double kParametersOfProducts = 7.5e9;  // of Llama-3.1-8B, without embedding
  for (const double output : {2.0, 20.0, 338.0}) {
    const Workload workload = workload_of(161, output, 0);
    const Asked made("meta-llama/Llama-3.1-8B", "h100-sxm-80gb", workload);
    const double peak = made.predicted.predictor().peak_flops_per_second();
    for (const int64_t batch : {1, 16, 256, 512}) {
      const double requests = made.curve().at(batch)->throughput_tokens_per_second.high / output;
      EXPECT_LT(requests * (161 + output) * 2 * kParametersOfProducts, peak)
          << output << " " << batch;
    }
  }
}

TEST(PredictedCurve, AttentionOfLongPromptsGrowsWithTheirSquare) {
  const Asked made("meta-llama/Llama-3.1-8B", "h100-sxm-80gb", workload_of(161, 338, 0));
  for (const serving::PrefillLaw& law : made.curve().prefill_laws()) {
    EXPECT_GT(law.attention_seconds(0, 131072), 3.5 * law.attention_seconds(0, 65536));
  }
}

// Memory that is faster, beside the same tensor cores, makes no step longer.
TEST(PredictedCurve, FasterMemoryIsNotSlower) {
  const Workload workload = workload_of(161, 338, 1);
  const Asked slower("meta-llama/Llama-3.1-8B", "h100-sxm-80gb", workload);
  const Asked faster("meta-llama/Llama-3.1-8B", "h200-sxm-141gb", workload);
  for (const int64_t batch : {1, 16, 64, 128, 256}) {
    EXPECT_LT(faster.curve().at(batch)->itl_seconds.expected,
              slower.curve().at(batch)->itl_seconds.expected)
        << batch;
  }
}

// The experts that a large batch has awake are not read again for the prompts beside it.
TEST(PredictedCurve, PromptsBesideAMixturesBatchFindItsExpertsAwake) {
  const Workload workload = workload_of(161, 338, 1);
  const Asked made("Qwen/Qwen3-30B-A3B", "h100-sxm-80gb", workload);
  const double step = made.curve().step(256)->step.seconds;
  EXPECT_LT(made.curve().at(256)->itl_seconds.expected, 1.15 * step);
}

}  // namespace
}  // namespace headroom::batch
