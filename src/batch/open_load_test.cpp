#include "batch/open_load.h"

#include <gtest/gtest.h>

#include "batch/batch.h"
#include "batch/live_meter.h"
#include "device/catalogue.h"
#include "model/builtin.h"

namespace headroom::batch {
namespace {

using serving::LatencyMetric;

// Steps of 4 ms + 0.1 ms n.
BatchQuestion of_points() {
  BatchQuestion question;
  for (const int64_t batch : {1, 2, 4, 8, 16, 32, 64, 96, 128, 256}) {
    const double seconds = 4e-3 + 1e-4 * static_cast<double>(batch);
    question.points.push_back({.batch = batch,
                               .throughput_tokens_per_second = static_cast<double>(batch) / seconds,
                               .itl_seconds = seconds,
                               .running_mean = std::nullopt,
                               .kv_share = std::nullopt});
  }
  question.input_tokens = 100;
  question.output_tokens = 100;
  return question;
}

Result<BatchAnswer> ask(const BatchQuestion& question) {
  return answer(question, nullptr, timing::TimingModel::built_in());
}

TEST(OpenLoad, AtALowRateARequestIsNearlyAloneAndAtAHighOneTheyWait) {
  BatchQuestion question = of_points();
  question.open_load.rates = {200, 0.5};
  question.open_load.limit = 64;
  const auto result = ask(question);
  ASSERT_TRUE(result) << result.error().to_string();
  const OpenLoadAnswer& open = *result->open_load;
  ASSERT_EQ(open.rows.size(), 2U);
  const OpenLoadRow& idle = open.rows[0];  // in order
  EXPECT_EQ(idle.requests_per_second, 0.5);
  EXPECT_NEAR(idle.of(LatencyMetric::ttft).p50.expected, 4.1e-3, 0.3e-3);
  EXPECT_NEAR(idle.of(LatencyMetric::itl).p50.expected, 4.1e-3, 0.3e-3);
  EXPECT_FALSE(idle.is_saturated);
  EXPECT_EQ(idle.kept, Kept::yes);
  EXPECT_LE(idle.of(LatencyMetric::itl).p50.low, idle.of(LatencyMetric::itl).p50.expected);
  // 64 in flight write 64 / 10.4 ms = 6154 tokens a second, of 100 a request.
  EXPECT_NEAR(open.closed_requests_per_second, 61.5, 2);
  EXPECT_TRUE(open.rows[1].is_saturated);
  EXPECT_EQ(open.rows[1].kept, Kept::no);
  EXPECT_NEAR(open.rows[1].throughput_tokens_per_second.expected, 6154, 300);
  EXPECT_NEAR(open.highest_rate.expected, 61.5, 5);
}

TEST(OpenLoad, APercentileOfTheTimeBetweenTokensBoundsTheBatch) {
  // 10 ms is a step of 60: with a limit above it a burst passes it, with 48 none does.
  BatchQuestion question = of_points();
  question.open_load.targets = {{LatencyMetric::itl, 99, 10e-3}, {LatencyMetric::ttft, 95, 1.0}};
  const auto result = ask(question);
  ASSERT_TRUE(result) << result.error().to_string();
  const OpenLoadAnswer& open = *result->open_load;
  EXPECT_GE(open.limit, 48);
  EXPECT_LE(open.limit, 64);
  EXPECT_LE(*open.limit_low, open.limit);
  EXPECT_GE(*open.limit_high, open.limit);
  // Never more than a closed loop of 60, 60 / 10 ms of 100 tokens each.
  EXPECT_GT(open.highest_rate.expected, 30);
  EXPECT_LT(open.highest_rate.expected, 60);
  EXPECT_LE(open.highest_rate.low, open.highest_rate.expected);
  EXPECT_GE(open.highest_rate.high, open.highest_rate.expected);
  for (const OpenLoadLimit& limit : open.by_limit) {
    EXPECT_LE(limit.highest_rate.value_or(0), 1.02 * open.highest_rate.high) << limit.limit;
  }
  for (const OpenLoadRow& row : open.rows) {
    if (row.requests_per_second < open.highest_rate.low) {
      EXPECT_EQ(row.kept, Kept::yes);
    } else if (row.requests_per_second > open.highest_rate.high) {
      EXPECT_EQ(row.kept, Kept::no);
    }
    EXPECT_LE(row.goodput_requests_per_second.expected,
              1.05 * row.requests_per_second);  // of what was drawn, a few percent more may come
  }
}

TEST(OpenLoad, PromptsThatTakeTimeAreKnownFromAGivenRate) {
  BatchQuestion question = of_points();
  question.open_load.rates = {1};
  question.open_load.limit = 64;
  question.length_variation = 0;
  question.open_load.prefill_tokens_per_second = 50'000;  // 2 ms a prompt, of 10 ms a token
  const auto result = ask(question);
  ASSERT_TRUE(result) << result.error().to_string();
  const OpenLoadRow& row = result->open_load->rows[0];
  EXPECT_NEAR(row.of(LatencyMetric::ttft).p50.expected, 4.1e-3 + 2e-3, 0.4e-3);
  question.open_load.prefill_tokens_per_second = 100;
  EXPECT_EQ(ask(question).error().code, ErrorCode::usage);
}

TEST(OpenLoad, WhatIsOutOfRangeIsSaid) {
  const auto refuses = [](auto&& change) {
    BatchQuestion question = of_points();
    question.open_load.rates = {1};
    change(question.open_load);
    const auto result = ask(question);
    return !result && result.error().code == ErrorCode::usage;
  };
  EXPECT_TRUE(refuses([](OpenLoadQuestion& open) { open.rates = {0}; }));
  EXPECT_TRUE(refuses([](OpenLoadQuestion& open) { open.rates = {1, 1e9}; }));
  EXPECT_TRUE(refuses([](OpenLoadQuestion& open) { open.rates.resize(21, 1); }));
  EXPECT_TRUE(refuses([](OpenLoadQuestion& open) { open.attain = 1.5; }));
  EXPECT_TRUE(refuses([](OpenLoadQuestion& open) { open.limit = 0; }));
  EXPECT_TRUE(refuses([](OpenLoadQuestion& open) { open.max_num_batched_tokens = 0; }));
  EXPECT_TRUE(refuses([](OpenLoadQuestion& open) { open.prefill_tokens_per_second = 0; }));
}

// The closed loop, simulated, is the curve that the advisor chooses on, with prompts read in pieces
// beside what decodes.
TEST(OpenLoad, AClosedLoopOfThePredictedEngineIsTheCurve) {
  BatchQuestion question;
  question.weights = op::DType::f16;
  const auto resolved = *model::resolve_model("facebook/opt-1.3b");
  const text::JsonView config = resolved.view();
  const auto device = *device::DeviceCatalogue::built_in().find("h100-sxm-64gb");
  const auto timing = timing::TimingModel::built_in();
  const Workload workload = workload_of(161, 338, 1);
  const auto predicted = *Predicted::make(
      config, device, {.context = mean_context(workload), .weights = question.weights}, workload,
      timing);
  const PredictedCurve& curve = predicted.curve();
  const auto basis = open_load_basis(question, workload, curve, &predicted);
  ASSERT_TRUE(basis) << basis.error().to_string();
  for (const int64_t batch : {1, 16, 128}) {
    const auto arrivals = serving::poisson_arrivals(basis->lengths, 3000, 1);
    for (size_t end = 0; end < 3; ++end) {
      const auto run = serving::simulate(arrivals, basis->laws[end], {.max_num_seqs = batch},
                                         {.closed_loop = batch, .from = 500, .to = 2500});
      double tokens = 0;
      for (const auto& request : run.requests) {
        if (request.is_ended) tokens += static_cast<double>(request.output_tokens);
      }
      const Interval rate = *curve.chunked_throughput(batch);
      const double expected = end == 0 ? rate.high : end == 1 ? rate.expected : rate.low;
      EXPECT_NEAR(tokens / run.seconds, expected, 0.05 * expected) << batch << " " << end;
    }
  }
}

}  // namespace
}  // namespace headroom::batch
