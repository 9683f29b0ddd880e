#include "batch/batch.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "batch/replication.h"
#include "device/catalogue.h"
#include "model/builtin.h"

namespace headroom::batch {
namespace {

std::vector<formats::ServingPoint> sweep() {
  std::vector<formats::ServingPoint> points;
  for (const int64_t batch : {1, 32, 64, 96, 128, 256}) {
    const double seconds = 4e-3 + 1e-4 * static_cast<double>(batch);
    points.push_back({.batch = batch,
                      .throughput_tokens_per_second = static_cast<double>(batch) / seconds,
                      .itl_seconds = seconds,
                      .running_mean = std::nullopt,
                      .kv_share = static_cast<double>(batch) / 600});
  }
  return points;
}

Result<BatchAnswer> ask(const BatchQuestion& question, const std::string& model = "") {
  const timing::TimingModel timing_model = timing::TimingModel::built_in();
  if (model.empty()) return answer(question, nullptr, timing_model);
  const auto resolved = *model::resolve_model(model);
  const text::JsonView config = resolved.view();
  return answer(question, &config, timing_model);
}

// Seconds in a column of milliseconds, and a limit that something else held back.
TEST(Batch, DoubtfulPointsAreSaid) {
  const auto says = [](const BatchQuestion& question, const char* words) {
    const auto result = ask(question);
    return result && std::ranges::any_of(result->notes, [&](const std::string& note) {
             return note.find(words) != std::string::npos;
           });
  };
  BatchQuestion question;
  question.points = sweep();
  EXPECT_FALSE(says(question, "in milliseconds?"));
  EXPECT_FALSE(says(question, "less in flight"));
  question.points.back().running_mean = 40;
  question.points.back().throughput_tokens_per_second /= 6;
  EXPECT_TRUE(says(question, "less in flight"));
  question.points = sweep();
  for (auto& point : question.points) point.itl_seconds *= 1e-3;
  EXPECT_TRUE(says(question, "in milliseconds?"));
}

TEST(Batch, FromPointsAlone) {
  BatchQuestion question;
  question.points = sweep();
  question.slo = ItlTarget{.seconds = std::nullopt, .multiple = 2, .at_batch = 32};
  const auto result = ask(question);
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_DOUBLE_EQ(*result->itl_target_seconds, 14.4e-3);
  EXPECT_EQ(result->advice.batch, 96);
  EXPECT_DOUBLE_EQ(*result->kv.share, 0.16);
  EXPECT_FALSE(result->kv.needed);
  EXPECT_TRUE(result->replicas.empty());
  EXPECT_FALSE(result->notes.empty());
}

TEST(Batch, AGivenHostGapGivesReplicas) {
  BatchQuestion question;
  question.points = sweep();
  question.host_gap = 0.4;
  question.slo = ItlTarget{.seconds = 14.4e-3};
  const auto result = *ask(question);
  ASSERT_EQ(result.replicas.size(), 6U);
  EXPECT_NEAR(result.replicas[0].speedup_vs_single.expected, 2 / 1.36, 1e-9);
  EXPECT_LT(result.replicas[0].speedup_vs_max.expected,
            result.replicas[0].speedup_vs_single.expected);
  EXPECT_FALSE(result.replicas[0].fits);
}

TEST(Batch, PredictedForAModelOnADevice) {
  BatchQuestion question;
  question.model = "facebook/opt-1.3b";
  question.device = *device::DeviceCatalogue::built_in().find("h100-sxm-64gb");
  question.weights = op::DType::f16;
  question.slo = ItlTarget{.seconds = std::nullopt, .multiple = 2, .at_batch = 32};
  const auto result = ask(question, question.model);
  ASSERT_TRUE(result) << result.error().to_string();
  ASSERT_TRUE(result->advice.batch);
  EXPECT_GE(*result->advice.high, *result->advice.batch);
  EXPECT_LE(*result->advice.low, *result->advice.batch);
  EXPECT_EQ(*result->kv.needed + *result->kv.freed, *result->kv.whole);
  EXPECT_FALSE(result->replicas.empty());
  EXPECT_TRUE(result->replicas[0].fits.value_or(false));
  EXPECT_FALSE(result->commands.empty());
}

// A law that saw no host beside the kernels does not know that there is none: what steps may be
// longer than their kernels may be the host's.
TEST(Batch, AHostThatWasNotSeenMayBeThereAllTheSame) {
  BatchQuestion question;
  question.model = "facebook/opt-1.3b";
  question.device = *device::DeviceCatalogue::built_in().find("h100-sxm-64gb");
  question.slo = ItlTarget{.seconds = std::nullopt, .multiple = 2, .at_batch = 32};
  const auto result = ask(question, question.model);
  ASSERT_TRUE(result && result->host_gap);
  EXPECT_EQ(result->host_gap->expected, 0);
  EXPECT_GT(result->host_gap->high, 0.1);
  const Replicas& two = result->replicas.front();
  EXPECT_EQ(two.speedup_vs_single.expected, 1);
  EXPECT_NEAR(two.speedup_vs_single.high,
              kMpsKeeps.high * replication_speedup(2, result->host_gap->high), 1e-12);
}

TEST(Batch, AModelThatDoesNotFitHasNoCurve) {
  BatchQuestion question;
  question.model = "meta-llama/Llama-2-70b-hf";
  question.device = *device::DeviceCatalogue::built_in().find("l4");
  const auto result = ask(question, question.model);
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_TRUE(result->curve.empty());
  EXPECT_FALSE(result->advice.batch);
  EXPECT_EQ(result->advice.bound, Bound::memory);
  ASSERT_FALSE(result->notes.empty());
  EXPECT_NE(result->notes.back().find("GiB are missing"), std::string::npos);
}

BatchQuestion llama_on_h100() {
  BatchQuestion question;
  question.model = "meta-llama/Llama-3.1-8B";
  question.device = *device::DeviceCatalogue::built_in().find("h100-sxm-80gb");
  return question;
}

// 131,072 positions; a sequence of as many does not fit beside others, nor is it ever more than
// all.
TEST(Batch, RequestsAreNoLongerThanTheModelAndTheCache) {
  BatchQuestion question = llama_on_h100();
  question.input_tokens = 200000;
  const auto longer = ask(question, question.model);
  ASSERT_FALSE(longer);
  EXPECT_NE(longer.error().to_string().find("131072 positions"), std::string::npos);
  // Beside the weights this card has room for some 40,000 tokens: less than what a spread of
  // lengths about this mean comes to.
  question.device = *device::DeviceCatalogue::built_in().find("l4");
  question.input_tokens = 30000;
  const auto result = ask(question, question.model);
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_TRUE(result->curve.empty());
  EXPECT_EQ(result->advice.bound, Bound::memory);
  question.input_tokens = 10000;
  question.length_variation = 0;
  const auto fits = ask(question, question.model);
  ASSERT_TRUE(fits && fits->kv.share);
  EXPECT_LE(*fits->kv.share, 1);
}

// What was measured ran; the cache that is asked for is no larger than there is.
TEST(Batch, NoMoreThanTheWholeCacheIsAskedFor) {
  BatchQuestion question = llama_on_h100();
  question.device = *device::DeviceCatalogue::built_in().find("l4");
  question.points = sweep();
  for (auto& point : question.points) point.kv_share.reset();
  question.input_tokens = 2000;
  const auto result = ask(question, question.model);
  ASSERT_TRUE(result && result->kv.needed) << result.error().to_string();
  EXPECT_EQ(*result->kv.needed, *result->kv.whole);
  EXPECT_EQ(*result->kv.share, 1);
}

TEST(Batch, WhatIsMissingIsSaid) {
  EXPECT_EQ(ask({}).error().code, ErrorCode::usage);
  BatchQuestion question;
  question.points = sweep();
  question.min_efficiency = 1.5;
  EXPECT_EQ(ask(question).error().code, ErrorCode::usage);
}

}  // namespace
}  // namespace headroom::batch
