#include "bench/decode.h"

#include <gtest/gtest.h>

#include "device/catalogue.h"
#include "model/builtin.h"

namespace headroom::bench {
namespace {

const timing::TimingModel& timing_model() {
  static const timing::TimingModel model = timing::TimingModel::built_in();
  return model;
}

Result<DecodeAnswer> predict(const char* model, const char* device, int64_t context,
                             std::vector<int64_t> batches) {
  const auto resolved = model::resolve_model(model);
  if (!resolved) return resolved.error();
  DecodeQuestion question;
  question.model = resolved->name;
  question.device = *device::DeviceCatalogue::built_in().find(device);
  question.context = context;
  question.batches = std::move(batches);
  return predict_decode(resolved->view(), question, timing_model());
}

TEST(Decode, AttentionsIntensityDoesNotGrowWithTheBatch) {
  const DecodeAnswer answer = *predict("facebook/opt-1.3b", "h100-sxm-64gb", 330, {1, 64, 512});
  ASSERT_EQ(answer.steps.size(), 3U);
  // Keys and values of 24 layers: 2 x 2048 numbers of 2 bytes for each token.
  EXPECT_EQ(answer.steps[1].kv_cache, Bytes(64 * 24 * 2 * 2048 * 2 * int64_t{329}));
  EXPECT_NEAR(answer.steps[1].attention.bytes, 24 * 64 * (330.0 * 2 * 2048 + 2 * 2048) * 2, 1);
  for (const DecodeStep& step : answer.steps) {
    EXPECT_NEAR(step.attention.arithmetic_intensity(), 1, 0.01);
    EXPECT_LT(step.step.low_seconds, step.step.seconds);
    EXPECT_LT(step.step.seconds, step.step.high_seconds);
    EXPECT_GT(step.step.seconds, step.roofline_seconds);
  }
  // That of products does: 64 sequences share each weight.
  EXPECT_GT(answer.steps[1].matmul.arithmetic_intensity(),
            40 * answer.steps[0].matmul.arithmetic_intensity());
  EXPECT_GT(answer.steps[2].attention.bytes_per_second(), 0.65 * answer.peak_bytes_per_second);
}

TEST(Decode, ProductsAreThoseOfTheModel) {
  const DecodeAnswer answer = *predict("meta-llama/Llama-2-7b-hf", "a100-sxm-80gb", 512, {1});
  // Every weight but the embedding's, twice: a multiply-add is two.
  EXPECT_NEAR(answer.steps[0].matmul.flops, 2 * (6738415616.0 - 32000 * 4096 - 65 * 4096), 1e6);
  EXPECT_EQ(answer.weights, Bytes(2 * int64_t{6738415616}));
  EXPECT_EQ(answer.steps[0].matmul.provenance, Provenance::interpolated);
}

TEST(Decode, ABatchWakesExpertsUntilAllAreAwake) {
  const DecodeAnswer answer = *predict("mistralai/Mixtral-8x7B-v0.1", "h200", 512, {1, 2, 64});
  // 32 layers; 3 matrices of 4096 x 14336 an expert, 2 of 8 experts a token, 2 bytes a number.
  constexpr double kExpert = 3.0 * 4096 * 14336 * 2;
  const auto expert_bytes = [&](size_t step) {
    return answer.steps[step].matmul.bytes / 32 / kExpert;
  };
  EXPECT_NEAR(expert_bytes(0), 2, 0.35);  // and attention's projections
  EXPECT_NEAR(expert_bytes(1) - expert_bytes(0), 8 * 0.4375 - 2, 0.02);  // 8 (1 - 0.75^2)
  EXPECT_NEAR(expert_bytes(2) - expert_bytes(0), 6, 0.1);
  EXPECT_NEAR(answer.steps[0].matmul.flops, 2 * (12.88e9 - 0.13e9), 0.02 * 25e9);  // active weights
}

TEST(Decode, SharedHeadsRaiseTheIntensity) {
  const DecodeAnswer answer = *predict("mistralai/Mistral-7B-v0.1", "h100-sxm-80gb", 4096, {32});
  EXPECT_NEAR(answer.steps[0].attention.arithmetic_intensity(), 4, 0.05);  // 32 heads on 8
}

TEST(Decode, UsualBatchesEndWhereMemoryDoes) {
  const DecodeAnswer answer = *predict("meta-llama/Llama-2-7b-hf", "a100-sxm-40gb", 2048, {});
  EXPECT_EQ(answer.steps.front().batch, 1);
  EXPECT_EQ(answer.steps.back().batch, answer.largest_batch);
  EXPECT_TRUE(answer.steps.back().fits);
  const DecodeAnswer none = *predict("meta-llama/Llama-2-13b-hf", "rtx-3060-12gb", 2048, {});
  EXPECT_EQ(none.largest_batch, 0);
  EXPECT_FALSE(none.steps.front().fits);
}

TEST(Decode, PointsCorrectTheStepsBetweenThem) {
  const auto resolved = *model::resolve_model("facebook/opt-1.3b");
  DecodeQuestion question;
  question.device = *device::DeviceCatalogue::built_in().find("h100-sxm-64gb");
  question.batches = {1, 64, 256, 512};
  const DecodeAnswer before = *predict_decode(resolved.view(), question, timing_model());
  // A machine that is 2 ms and half as slow again behind the prediction.
  const auto slower = [&](size_t i) { return 2e-3 + 1.5 * before.steps[i].step.seconds; };
  question.points = {{256, slower(2)}, {1, slower(0)}};
  const DecodeAnswer after = *predict_decode(resolved.view(), question, timing_model());
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(after.steps[i].step.seconds, slower(i), 1e-9);
  EXPECT_EQ(after.steps[1].provenance, Provenance::calibrated);
  EXPECT_EQ(after.steps[3].provenance, Provenance::extrapolated);  // beyond the points
  EXPECT_LT(after.steps[1].step.high_seconds / after.steps[1].step.seconds,
            before.steps[1].step.high_seconds / before.steps[1].step.seconds);

  question.points = {{1, 1e-3}};
  EXPECT_FALSE(predict_decode(resolved.view(), question, timing_model()));
  question.points = {{1, 1e-3}, {1, 1e-3}};  // one batch twice gives no line
  EXPECT_FALSE(predict_decode(resolved.view(), question, timing_model()));
  question.points = {{1, 1.0}, {512, 1e-3}};  // falling
  EXPECT_FALSE(predict_decode(resolved.view(), question, timing_model()));
  question.points = {{1, -1.0}, {512, 1e-3}};
  EXPECT_FALSE(predict_decode(resolved.view(), question, timing_model()));
}

TEST(Decode, SaysWhatItDoesNotModel) {
  const auto chosen = predict("zai-org/GLM-5", "h200", 512, {1});
  ASSERT_FALSE(chosen);
  EXPECT_EQ(chosen.error().code, ErrorCode::unavailable);
  EXPECT_TRUE(predict("deepseek-ai/DeepSeek-V3", "h200", 512, {1}));
  EXPECT_TRUE(predict("mistralai/Mistral-7B-v0.1", "h200", 4096, {1}));
  const auto beyond = predict("mistralai/Mistral-7B-v0.1", "h200", 4097, {1});
  ASSERT_FALSE(beyond);
  EXPECT_NE(beyond.error().message.find("sliding window of 4096"), std::string::npos);
}

TEST(Decode, RefusesWhatIsOutOfRange) {
  EXPECT_FALSE(predict("facebook/opt-1.3b", "h200", 1, {}));
  EXPECT_FALSE(predict("facebook/opt-1.3b", "h200", kMostContext + 1, {}));
  EXPECT_FALSE(predict("facebook/opt-1.3b", "h200", 512, {0}));
  EXPECT_FALSE(predict("facebook/opt-1.3b", "h200", 512, {kMostBatch + 1}));
  EXPECT_FALSE(predict("facebook/opt-1.3b", "cpu", 512, {1}));
}

double bytes_of(const std::vector<timing::CountedCall>& calls) {
  double bytes = 0;
  for (const auto& one : calls) bytes += static_cast<double>(one.times) * one.call.bytes;
  return bytes;
}

TEST(Decode, EagerOperatorsAreOneKernelEachAndDoNotCopyTheCache) {
  const auto model = *model::resolve_model("meta-llama/Llama-2-7b-hf");
  const auto work_at = [&](int64_t context, bool is_eager) {
    timing::DecodeOptions options{.context = context, .is_eager = is_eager};
    return *timing::decode_work(model.view(), options, 4);
  };
  const timing::DecodeWork eager = work_at(512, true);
  const timing::DecodeWork fused = work_at(512, false);
  EXPECT_EQ(eager.operators, fused.operators);
  EXPECT_EQ(bytes_of(eager.attention), bytes_of(fused.attention));
  EXPECT_EQ(bytes_of(eager.matmul), bytes_of(fused.matmul));
  int64_t kernels = 0;
  for (const auto& one : eager.other) kernels += one.times;
  EXPECT_GT(kernels, 32 * 15);  // a layer's two norms alone are ten
  EXPECT_LT(kernels, eager.operators);
  EXPECT_GT(bytes_of(eager.other), bytes_of(fused.other));
  EXPECT_NEAR(bytes_of(work_at(2048, true).other), bytes_of(eager.other),
              1e-3 * bytes_of(eager.other));
}

TEST(Decode, ADevicesOwnEngineIsAskedFirst) {
  timing::TimingModel model = timing_model();
  timing::LawFile file;
  timing::Engine engine;
  engine.name = "of-the-h200";
  engine.device = "h200-sxm-141gb";
  engine.is_eager = true;
  engine.host_seconds_per_operator = 1e-3;
  file.engines.push_back(engine);
  model.merge(file);
  const auto resolved = *model::resolve_model("openai-community/gpt2");
  DecodeQuestion question;
  question.batches = {1};
  question.device = *device::DeviceCatalogue::built_in().find("h200");
  const DecodeAnswer own = *predict_decode(resolved.view(), question, model);
  EXPECT_EQ(own.engine, "of-the-h200");
  EXPECT_GT(own.steps[0].host.seconds, 0.1);
  question.device = *device::DeviceCatalogue::built_in().find("a100-sxm-80gb");
  EXPECT_NE(predict_decode(resolved.view(), question, model)->engine, "of-the-h200");
}

}  // namespace
}  // namespace headroom::bench
