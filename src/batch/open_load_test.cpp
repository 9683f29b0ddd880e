#include "batch/open_load.h"

#include <gtest/gtest.h>

#include <array>

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

// A rate at which more come than are answered keeps nothing, and without a target nothing is
// missed.
TEST(OpenLoad, WithoutATargetARateIsKeptIfItIsAnswered) {
  BatchQuestion question = of_points();
  question.open_load.rates = {1, 1000};
  const auto rows = ask(question)->open_load->rows;
  EXPECT_EQ(rows.front().kept, Kept::yes);
  EXPECT_FALSE(rows.front().is_saturated);
  EXPECT_EQ(rows.back().kept, Kept::no);
  EXPECT_TRUE(rows.back().is_saturated);
}

// What the first line says of the highest rate is what its own row says, and no more than a server
// answers that is never empty.
void expect_one_answer(const OpenLoadAnswer& open) {
  const double highest = open.highest_rate.expected;
  ASSERT_GT(highest, 0);
  EXPECT_LE(highest, open.closed_requests_per_second);
  EXPECT_LE(open.highest_rate.low, highest);
  EXPECT_GE(open.highest_rate.high, highest);
  int found = 0;
  for (const OpenLoadRow& row : open.rows) {
    if (row.requests_per_second > open.closed_requests_per_second) {
      EXPECT_TRUE(row.is_saturated) << row.requests_per_second;
      EXPECT_FALSE(row.is_kept_as_expected);
      EXPECT_EQ(row.kept, Kept::no);
    }
    if (row.requests_per_second != highest) continue;
    ++found;
    EXPECT_TRUE(row.is_kept_as_expected);
    EXPECT_FALSE(row.is_saturated);
    for (size_t i = 0; i < open.targets.size(); ++i) {
      EXPECT_LE(row.at_targets[i].expected, open.targets[i].seconds) << i;
    }
  }
  EXPECT_EQ(found, 1);
  for (const OpenLoadLimit& limit : open.by_limit) {
    EXPECT_LE(limit.highest_rate.value_or(0), limit.closed_requests_per_second) << limit.limit;
    if (limit.limit == open.limit) {
      EXPECT_EQ(limit.highest_rate, highest);
    }
  }
}

TEST(OpenLoad, TheHighestRatesOwnRowIsKeptAndNoMoreThanIsAnswered) {
  const std::vector<std::vector<serving::LatencyTarget>> goals = {
      {{LatencyMetric::ttft, 95, 0.2}},
      {{LatencyMetric::ttft, 95, 5}},
      {{LatencyMetric::itl, 99, 12e-3}, {LatencyMetric::ttft, 95, 0.5}},
      {{LatencyMetric::e2e, 50, 2}}};
  for (const auto& targets : goals) {
    for (const int64_t limit : {0, 24}) {
      BatchQuestion question = of_points();
      question.open_load.targets = targets;
      if (limit > 0) question.open_load.limit = limit;
      const auto result = ask(question);
      ASSERT_TRUE(result) << result.error().to_string();
      expect_one_answer(*result->open_load);
    }
  }
}

// Where throughput falls with the batch, a queue that has come once stays: what the limit always in
// flight is answered is all that is served for long.
TEST(OpenLoad, NoRateIsKeptThatAFullServerDoesNotAnswer) {
  BatchQuestion question;
  for (const auto& [batch, rate] : std::vector<std::pair<int64_t, double>>{
           {1, 300}, {8, 2000}, {32, 5000}, {64, 4500}, {128, 4000}}) {
    question.points.push_back({.batch = batch,
                               .throughput_tokens_per_second = rate,
                               .itl_seconds = static_cast<double>(batch) / rate,
                               .running_mean = std::nullopt,
                               .kv_share = std::nullopt});
  }
  question.open_load.targets = {{LatencyMetric::ttft, 95, 0.5}};
  question.open_load.limit = 128;
  const auto result = ask(question);
  ASSERT_TRUE(result) << result.error().to_string();
  expect_one_answer(*result->open_load);
}

TEST(OpenLoad, TheHighestRateMovesWithTheTarget) {
  double before = 0;
  for (const double seconds : {9e-3, 10e-3, 12e-3, 20e-3}) {
    BatchQuestion question = of_points();
    question.open_load.limit = 128;
    question.open_load.targets = {{LatencyMetric::itl, 99, seconds}};
    const auto result = ask(question);
    ASSERT_TRUE(result) << result.error().to_string();
    expect_one_answer(*result->open_load);
    EXPECT_GT(result->open_load->highest_rate.expected, 1.05 * before) << seconds;
    before = result->open_load->highest_rate.expected;
  }
}

struct Setting {
  const char* model;
  const char* device;
  const char* engine;
  double input;
  double output;
  double variation;
  int64_t tensor_parallel;
  bool is_chunked;
};

// Tokens a second of the simulated engine with so many always in flight, at an end of the law.
double closed_loop(const OpenLoadBasis& basis, size_t end, int64_t batch, bool is_chunked) {
  serving::OpenLoad load{.arrivals = serving::poisson_arrivals(basis.lengths, 4000, 1),
                         .natural_rate = 1,
                         .from = 900,
                         .to = 3600,
                         .is_met_at_work = true};
  double output = 0;
  for (const auto& request : basis.lengths) {
    output +=
        static_cast<double>(request.output_tokens) / static_cast<double>(basis.lengths.size());
  }
  return output *
         serving::closed_loop_rate(load, batch, basis.laws[end],
                                   {.max_num_seqs = batch, .has_chunked_prefill = is_chunked});
}

// The closed loop of the simulated engine is the curve that the advisor chooses on: one server.
TEST(OpenLoad, AClosedLoopOfThePredictedEngineIsTheCurve) {
  const Setting settings[] = {
      {"facebook/opt-1.3b", "h100-sxm-64gb", "", 161, 338, 1, 1, true},
      {"facebook/opt-1.3b", "h100-sxm-64gb", "vllm-0.6.3", 161, 338, 1, 1, true},
      {"meta-llama/Llama-3.1-8B", "h100-sxm-80gb", "", 161, 338, 1, 1, true},
      {"meta-llama/Llama-3.1-8B", "h100-sxm-80gb", "", 161, 338, 0, 1, true},
      {"meta-llama/Llama-3.1-8B", "h100-sxm-80gb", "", 161, 338, 1, 1, false},
      {"meta-llama/Llama-3.1-8B", "h100-sxm-80gb", "", 2000, 300, 1, 1, true},
      {"Qwen/Qwen2.5-32B", "h100-sxm-80gb", "", 161, 338, 1, 2, true},
  };
  const auto timing = timing::TimingModel::built_in();
  for (const Setting& setting : settings) {
    BatchQuestion question;
    question.variant.engine = setting.engine;
    question.variant.tensor_parallel = setting.tensor_parallel;
    question.variant.has_chunked_prefill = setting.is_chunked;
    question.input_tokens = setting.input;
    question.output_tokens = setting.output;
    question.length_variation = setting.variation;
    const auto resolved = *model::resolve_model(setting.model);
    const auto device = *device::DeviceCatalogue::built_in().find(setting.device);
    const Workload workload = workload_of(setting.input, setting.output, setting.variation);
    const auto predicted = *Predicted::make(
        resolved.view(), device, {.context = mean_context(workload), .variant = question.variant},
        workload, timing);
    const PredictedCurve& curve = predicted.curve();
    EXPECT_EQ(curve.has_chunked_prefill(), setting.is_chunked && !*setting.engine);
    const auto basis = open_load_basis(question, workload, curve, &predicted);
    ASSERT_TRUE(basis) << basis.error().to_string();
    for (const int64_t batch : {1, 16, 128, 512}) {
      const BatchPoint point = *curve.at(batch);
      const Interval& rate = point.throughput_tokens_per_second;
      for (size_t end = 0; end < 3; ++end) {
        const double expected = std::array{rate.high, rate.expected, rate.low}[end];
        // More in flight than the budget of an iteration has prompts for: who waits to be read does
        // not decode, which the curve does not know.
        const double budget = static_cast<double>(serving::EngineLimits{}.max_num_batched_tokens);
        const bool is_within = static_cast<double>(batch) * (setting.input + setting.output) <=
                               budget * setting.output;
        EXPECT_NEAR(closed_loop(*basis, end, batch, curve.has_chunked_prefill()), expected,
                    (is_within ? 0.05 : 0.1) * expected)
            << setting.model << " " << setting.engine << " " << setting.input << " " << batch << " "
            << end << " " << setting.is_chunked;
      }
    }
  }
}

}  // namespace
}  // namespace headroom::batch
