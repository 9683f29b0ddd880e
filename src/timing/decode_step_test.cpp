// Decode steps of latent and of linear attention, counted, against what their papers and
// configurations say.
#include "timing/decode_step.h"

#include <gtest/gtest.h>

#include <cmath>

#include "device/catalogue.h"
#include "model/builtin.h"

namespace headroom::timing {
namespace {

constexpr int64_t kContext = 1000;

DecodePredictor predictor(const model::ResolvedModel& model, const DecodeOptions& options) {
  static const TimingModel timing = TimingModel::built_in();
  static const device::Device device = *device::DeviceCatalogue::built_in().find("h200");
  auto made = DecodePredictor::make(model.view(), device, options, timing);
  if (!made) ADD_FAILURE() << made.error().to_string();
  return *std::move(made);
}

DecodeWork work_of(const char* name, int64_t batch) {
  const auto model = *model::resolve_model(name);
  auto work = decode_work(model.view(), {.context = kContext}, batch);
  if (!work) ADD_FAILURE() << work.error().to_string();
  return *std::move(work);
}

double sum(const std::vector<CountedCall>& calls, double Call::*field) {
  double all = 0;
  for (const CountedCall& one : calls) all += static_cast<double>(one.times) * (one.call.*field);
  return all;
}

// Two FLOPs a weight and token: of DeepSeek-V3 37 billion parameters work on a token (arXiv
// 2412.19437), its embedding is read and not multiplied; of V2 21 (arXiv 2405.04434).
TEST(DecodeStep, AbsorbedLatentAttentionMultipliesEachActiveWeightOnce) {
  EXPECT_NEAR(sum(work_of("deepseek-ai/DeepSeek-V3", 1).matmul, &Call::flops) / 2, 37e9, 0.8e9);
  EXPECT_NEAR(sum(work_of("deepseek-ai/DeepSeek-V2", 1).matmul, &Call::flops) / 2, 21e9, 0.8e9);
}

// 512 + 64 numbers of two bytes a token and layer, whatever the heads; all 128 of them read that
// once: scores of 576 and sums of 512 for each.
// The new token's comes with the step.
TEST(DecodeStep, LatentAttentionReadsTheLatent) {
  constexpr double kLayers = 61;
  const DecodeWork work = work_of("deepseek-ai/DeepSeek-V3", 4);
  EXPECT_EQ(work.kv_cache.count, 4 * (kContext - 1) * 61 * 576 * 2);
  const double cache = 4.0 * kContext * kLayers * 576 * 2;
  const double queries = 2 * 4.0 * kLayers * 128 * 576 * 2;  // in and out
  EXPECT_NEAR(sum(work.attention, &Call::bytes), cache + queries, 1);
  EXPECT_NEAR(sum(work.attention, &Call::flops), 4.0 * kContext * kLayers * 128 * 2 * (576 + 512),
              1);
}

// Every GPU needs all latents: only the weights are divided.
TEST(DecodeStep, TensorParallelGpusEachKeepAllLatents) {
  const auto model = *model::resolve_model("deepseek-ai/DeepSeek-V2");
  DecodeOptions options{.context = kContext};
  const DecodePredictor one = predictor(model, options);
  options.variant.tensor_parallel = 8;
  const DecodePredictor eight = predictor(model, options);
  EXPECT_EQ(one.kv_of_one(), eight.kv_of_one());
  EXPECT_NEAR(static_cast<double>(one.weights().count) / static_cast<double>(eight.weights().count),
              8, 0.01);
  EXPECT_TRUE(one.has_latent_attention());
}

// Qwen3-Next: of 48 layers every fourth has a cache of two heads of 256; the others a state of 32
// heads of 128 x 128 in float32, and four inputs of a convolution of 8192 channels.
TEST(DecodeStep, LinearAttentionHasAStateOfFixedSize) {
  const auto model = *model::resolve_model("Qwen/Qwen3-Next-80B-A3B-Instruct");
  const auto cache_at = [&](int64_t context) {
    return predictor(model, {.context = context}).kv_of_one().count;
  };
  constexpr int64_t kStates = 36 * (32 * 128 * 128 * 4 + 8192 * 4 * 2);
  constexpr int64_t kOfToken = 12 * 2 * 2 * 256 * 2;
  EXPECT_EQ(cache_at(1000), kStates + 999 * kOfToken);
  EXPECT_EQ(cache_at(4000), kStates + 3999 * kOfToken);
  // Read and written in each step, among the other kernels.
  const double other = sum(work_of("Qwen/Qwen3-Next-80B-A3B-Instruct", 8).other, &Call::bytes);
  EXPECT_GT(other, 8 * 2.0 * kStates);
  EXPECT_LT(other, 8 * 2.5 * kStates);
}

// 3 billion of its parameters work on a token, as its name says, and the head among them.
TEST(DecodeStep, LinearAttentionMultipliesEachActiveWeightOnce) {
  const DecodeWork work = work_of("Qwen/Qwen3-Next-80B-A3B-Instruct", 1);
  EXPECT_NEAR(sum(work.matmul, &Call::flops) / 2, 3.6e9, 0.5e9);
}

TEST(DecodeStep, PromptsAndStepsOfBothTakeTime) {
  for (const char* name :
       {"deepseek-ai/DeepSeek-V2-Lite", "Qwen/Qwen3.5-9B", "Qwen/Qwen3-Next-80B-A3B-Instruct"}) {
    const auto model = *model::resolve_model(name);
    const DecodePredictor made = predictor(model, {.context = kContext});
    const auto few = made.step(1);
    const auto many = made.step(64);
    ASSERT_TRUE(few && many) << name;
    EXPECT_GT(few->step.seconds, 0);
    EXPECT_GT(many->step.seconds, few->step.seconds) << name;
    const auto rows = made.rows(2000);
    const auto attention = made.prompt_attention(2000);
    ASSERT_TRUE(rows && attention) << name;
    EXPECT_GT(rows->seconds, few->matmul.time.seconds) << name;
    EXPECT_GT(attention->seconds, 0) << name;
  }
}

DecodeStep step_of(const char* name, const std::string& engine, int64_t batch) {
  const auto model = *model::resolve_model(name);
  return *predictor(model, {.context = kContext, .variant = {.engine = engine}}).step(batch);
}

// Host and sampling are an engine's; kernels are not.
TEST(DecodeStep, AFormerEngineTakesLonger) {
  const DecodeStep today = step_of("Qwen/Qwen3-8B", "", 128);
  const DecodeStep former = step_of("Qwen/Qwen3-8B", "vllm-0.6.3", 128);
  EXPECT_EQ(today.matmul.time.seconds, former.matmul.time.seconds);
  EXPECT_EQ(today.attention.time.seconds, former.attention.time.seconds);
  const TimingModel model = TimingModel::built_in();
  const Engine& law = *model.engine_of("vllm", "0.6");
  const Engine& now = *model.engine_on("");
  EXPECT_NEAR(former.host.seconds, law.host_base_seconds + 128 * law.host_seconds_per_sequence,
              1e-9);
  EXPECT_LT(today.host.seconds, former.host.seconds / 4);
  // 152,000 logits of each sequence, of which vLLM 0.6.3 made nearly 5 ms.
  const double a_logit = law.sampling_seconds_per_logit - now.sampling_seconds_per_logit;
  EXPECT_NEAR(former.other.time.seconds - today.other.time.seconds, a_logit * 128 * 151936, 1e-9);
}

// As far as steps of servers were off, where nothing of them was known: of mixtures more.
TEST(DecodeStep, StepsOfTodaysEnginesAreAsUncertainAsServersWere) {
  const StepHalfWidth width = *TimingModel::built_in().engine_on("")->step_half_width;
  EXPECT_GT(width.experts_log, width.dense_log);
  for (const auto& [name, half] : {std::pair{"Qwen/Qwen3-32B", width.dense_log},
                                   std::pair{"Qwen/Qwen3-30B-A3B", width.experts_log}}) {
    const TimeInterval step = step_of(name, "", 64).step;
    EXPECT_GE(step.high_seconds, step.seconds * std::exp(half) * (1 - 1e-9)) << name;
    EXPECT_LE(step.low_seconds, step.seconds * std::exp(-half) * (1 + 1e-9)) << name;
  }
}

// They served in bf16, fp8 and fp4, where the laws of the parts may be wider than what the steps
// were off by; of a type that none of them had they say nothing that narrows.
TEST(DecodeStep, ServersNarrowOnlyWhatTheyServed) {
  const auto model = *model::resolve_model("Qwen/Qwen3-8B");
  const double dense = TimingModel::built_in().engine_on("")->step_half_width->dense_log;
  const auto half_width = [&](op::DType weights, const DecodeVariant& variant) {
    const auto made =
        predictor(model, {.context = kContext, .weights = weights, .variant = variant});
    const TimeInterval step = made.step(64)->step;
    return std::log(step.seconds / step.low_seconds);
  };
  const DecodeVariant fp8{.weight_element_bytes = 1, .product_rate = device::Rate::fp8};
  const DecodeVariant int8{.weight_element_bytes = 1, .product_rate = device::Rate::int8};
  const DecodeVariant four{.weight_element_bytes = kInt4Bytes};
  EXPECT_NEAR(half_width(op::DType::bf16, {}), dense, 1e-9);
  EXPECT_NEAR(half_width(op::DType::f16, {}), dense, 1e-9);
  EXPECT_NEAR(half_width(op::DType::bf16, fp8), dense, 1e-9);
  EXPECT_NEAR(half_width(op::DType::bf16, four), dense, 1e-9);
  EXPECT_GT(half_width(op::DType::f32, {}), dense * 1.2);
  EXPECT_GE(half_width(op::DType::bf16, int8), dense - 1e-9);
}

// No step of the servers was as short: a host that takes longer than such kernels was not seen.
TEST(DecodeStep, ShortStepsMayWaitForTheHost) {
  const DecodeStep step = step_of("facebook/opt-125m", "", 1);
  const double least = TimingModel::built_in().engine_on("")->least_step_seconds;
  EXPECT_GT(least, 1e-3);
  EXPECT_LT(step.step.seconds, least / 2);
  EXPECT_GE(step.step.high_seconds, least);
}

TEST(DecodeStep, EagerModeOfThemIsRefused) {
  for (const char* name : {"deepseek-ai/DeepSeek-V2-Lite", "Qwen/Qwen3.5-9B"}) {
    const auto model = *model::resolve_model(name);
    const auto work = decode_work(model.view(), {.context = 100, .is_eager = true}, 1);
    ASSERT_FALSE(work) << name;
    EXPECT_EQ(work.error().code, ErrorCode::unavailable);
  }
  const auto chosen = *model::resolve_model("zai-org/GLM-5");
  EXPECT_FALSE(decode_work(chosen.view(), {.context = 100}, 1));
}

// Of a model of text and images as of one of text alone.
TEST(DecodeStep, ContextsBeyondTheWindowAreRefused) {
  for (const char* name : {"google/gemma-3-1b-it", "google/gemma-3-4b-it"}) {
    const auto model = *model::resolve_model(name);
    EXPECT_TRUE(decode_work(model.view(), {.context = 512}, 1)) << name;
    const auto beyond = decode_work(model.view(), {.context = 4096}, 1);
    ASSERT_FALSE(beyond) << name;
    EXPECT_NE(beyond.error().to_string().find("sliding window"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace headroom::timing
