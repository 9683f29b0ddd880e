#include "ops/predicted_step.h"

#include <gtest/gtest.h>

#include "device/catalogue.h"
#include "ops/step_source.h"

namespace headroom::ops {
namespace {

// Of the shape of Llama 2 7B, with four layers.
constexpr std::string_view kConfig =
    R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
  "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 4,
  "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000,
  "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "hidden_act": "silu",
  "tie_word_embeddings": false})";

StepSource source_of(bool is_training) {
  const text::Json json = *text::parse_json(kConfig, "config.json");
  StepSetting setting;
  setting.is_training = is_training;
  setting.batch = 2;
  setting.seq = 1024;
  auto source = step_of_config(text::JsonView(json, "config.json"), setting);
  EXPECT_TRUE(source) << source.error().to_string();
  return std::move(*source);
}

PredictedRun predicted(const StepSource& source, const char* phase,
                       Quantize quantize = Quantize::none, bool fuse = false) {
  StepQuestion question;
  question.device = *device::DeviceCatalogue::built_in().find("h100-sxm-80gb");
  question.phase = phase;
  question.batch = source.batch;
  question.shape = source.shape;
  question.quantize = quantize;
  question.fuse = fuse;
  const timing::TimingModel model = timing::TimingModel::built_in();
  const auto run = predict_step(calls_of(source.trace), question, model);
  EXPECT_TRUE(run) << run.error().to_string();
  return run ? *run : PredictedRun{};
}

double ms_of(const PredictedRun& run, std::string_view name) {
  for (const PredictedPart& part : run.parts) {
    if (part.name == name) return part.ms;
  }
  return 0;
}

TEST(PredictedStep, TheProductsOfAPrefillAreTheModels) {
  const StepSource source = source_of(false);
  double flops = 0;
  for (const StepCall& call : calls_of(source.trace)) flops += call.is_linear ? call.flops : 0;
  // By hand: a layer has 4 products of 4096 x 4096 and 3 of 4096 x 11008; the head 4096 x 32000.
  const double weights = 4 * (4 * 4096.0 * 4096 + 3 * 4096.0 * 11008) + 4096.0 * 32000;
  const double tokens = 2048;
  // The head may run for the last token alone.
  EXPECT_GE(flops, 2 * (tokens * (weights - 4096.0 * 32000)) * 0.999);
  EXPECT_LE(flops, 2 * tokens * weights * 1.001);
}

TEST(PredictedStep, PartsSumAndHaveIntervals) {
  for (const bool is_training : {false, true}) {
    const PredictedRun run = predicted(source_of(is_training), is_training ? "train" : "prefill");
    double ms = 0;
    double pct = 0;
    for (const PredictedPart& part : run.parts) {
      ms += part.ms;
      pct += part.pct;
      EXPECT_LE(part.ms_low, part.ms);
      EXPECT_LE(part.ms, part.ms_high);
      EXPECT_GE(part.speedup_2x, 1);
      EXPECT_FALSE(part.basis.empty()) << part.name;
    }
    EXPECT_NEAR(ms, run.step_ms, 1e-9 * ms);
    EXPECT_NEAR(pct, 100, 1e-6);
    EXPECT_LT(run.step_ms_low, run.step_ms);
    EXPECT_GT(run.step_ms_high, run.step_ms);
    EXPECT_GE(run.step_ms_high, run.roofline_ms);
    EXPECT_FALSE(run.unchanged_ms);
  }
}

// Backward has two products where forward has one, and the optimizer comes on top.
TEST(PredictedStep, TrainingTakesAboutThreeTimesThePrefill) {
  const PredictedRun prefill = predicted(source_of(false), "prefill");
  const PredictedRun train = predicted(source_of(true), "train");
  EXPECT_GT(ms_of(train, "gemm"), 2.5 * ms_of(prefill, "gemm"));
  EXPECT_LT(ms_of(train, "gemm"), 4.5 * ms_of(prefill, "gemm"));
  EXPECT_GT(ms_of(train, "optimizer"), 0);
  EXPECT_GT(train.launches, prefill.launches);
}

TEST(PredictedStep, QuantizationAddsItsWorkUnlessItIsFused) {
  const StepSource source = source_of(false);
  const PredictedRun plain = predicted(source, "prefill");
  EXPECT_EQ(ms_of(plain, "quantize"), 0);
  for (const Quantize quantize : {Quantize::int8, Quantize::fp8}) {
    const PredictedRun apart = predicted(source, "prefill", quantize);
    EXPECT_LT(ms_of(apart, "gemm"), ms_of(plain, "gemm"));
    EXPECT_GT(ms_of(apart, "quantize"), 0);
    EXPECT_GT(apart.launches, plain.launches);
    ASSERT_TRUE(apart.unchanged_ms);
    EXPECT_NEAR(*apart.unchanged_ms, plain.step_ms, 1e-9 * plain.step_ms);
    const PredictedRun within = predicted(source, "prefill", quantize, true);
    EXPECT_EQ(ms_of(within, "quantize"), 0);
    EXPECT_LT(within.step_ms, apart.step_ms);
  }
  // Weights are turned back before each product: nothing is won where tokens are many.
  const PredictedRun w4 = predicted(source, "prefill", Quantize::w4a16);
  EXPECT_GT(w4.step_ms, plain.step_ms);
}

TEST(PredictedStep, FusionJoinsNeighboursOfOneSize) {
  const auto call = [](op::OpGroup group, double read, double written) {
    StepCall made;
    made.group = group;
    made.bytes_read = read;
    made.bytes_written = written;
    return made;
  };
  const std::vector<StepCall> calls{
      call(op::OpGroup::elementwise, 8, 4), call(op::OpGroup::none, 0, 0),
      call(op::OpGroup::activation, 4, 4),  call(op::OpGroup::elementwise, 8, 4),
      call(op::OpGroup::elementwise, 4, 2), call(op::OpGroup::gemm, 4, 2),
      call(op::OpGroup::elementwise, 2, 2)};
  const std::vector<StepCall> joined = fused(calls, false);
  ASSERT_EQ(joined.size(), 4U);
  EXPECT_DOUBLE_EQ(joined[0].bytes_read, 12);  // 8, and the second operand of the third
  EXPECT_DOUBLE_EQ(joined[0].bytes_written, 4);
  const std::vector<StepCall> kept = fused(calls, true);
  ASSERT_EQ(kept.size(), 4U);
  EXPECT_DOUBLE_EQ(kept[0].bytes_written, 12);  // each for backward
}

TEST(PredictedStep, NamesOfQuantization) {
  EXPECT_EQ(parse_quantize("fp8"), Quantize::fp8);
  EXPECT_EQ(parse_quantize("int4"), std::nullopt);
  EXPECT_EQ(name_of(Quantize::w4a16), "w4a16");
}

// One step of a product of 64 x 512 by 512 x 256 with a bias, whose input lies on its side, a
// convolution of such an input, and the copy that turns one over.
std::vector<StepCall> calls_with_copies() {
  constexpr op::Permuted kTurned{512 * 64 * 4, 512};
  StepCall product;
  product.group = op::OpGroup::gemm;
  product.flops = 2.0 * 64 * 256 * 512;
  product.bytes_read = (64 + 256) * 512 * 4;
  product.bytes_written = 64 * 256 * 4;
  product.element_bytes = 4;
  product.is_linear = true;
  product.permuted = kTurned;
  product.has_bias = true;
  StepCall convolution = product;
  convolution.is_linear = false;
  convolution.has_bias = false;
  StepCall copy;
  copy.group = op::OpGroup::memory;
  copy.bytes_read = copy.bytes_written = 512 * 64 * 4;
  copy.permuted = kTurned;
  return {product, convolution, copy};
}

double bytes_moved_on(device::Vendor vendor) {
  StepQuestion question;
  question.device = *device::DeviceCatalogue::built_in().find("h100-sxm-80gb");
  question.device.vendor = vendor;
  question.phase = "prefill";
  question.shape.type = op::DType::f32;
  const auto run = predict_step(calls_with_copies(), question, timing::TimingModel::built_in());
  EXPECT_TRUE(run) << run.error().to_string();
  double bytes = 0;
  for (const PredictedPart& part : run->parts) bytes += part.name == "memory" ? part.bytes : 0;
  return bytes;
}

TEST(PredictedStep, AProcessorCopiesBiasesAndWhatLiesOnItsSide) {
  constexpr double kTurned = 2 * 512 * 64 * 4;
  EXPECT_EQ(bytes_moved_on(device::Vendor::nvidia), kTurned);  // the copy itself
  EXPECT_EQ(bytes_moved_on(device::Vendor::cpu), 2 * kTurned + 64 * 256 * 4);
}

// What is new is paid for where it is first written to: by the copy of a product's bias, and by a
// copy within an operator that is itself too large to be kept.
TEST(PredictedStep, NewMemoryCostsItsFirstTouch) {
  StepQuestion question;
  question.device = *device::DeviceCatalogue::built_in().find("h100-sxm-80gb");
  question.device.vendor = device::Vendor::cpu;
  question.phase = "prefill";
  question.shape.type = op::DType::f32;
  std::vector<StepCall> calls = calls_with_copies();
  calls[0].fresh_bytes = 1e6;
  calls[1].permuted.bytes = 40 * kMiB;
  const timing::TimingModel model = timing::TimingModel::built_in();
  const auto kept = predict_step(calls, question, model);
  question.fresh_memory = {1e-6, 2e-6, 4e-6};
  const auto fresh = predict_step(calls, question, model);
  ASSERT_TRUE(kept && fresh);
  EXPECT_TRUE(kept->notes.empty());
  ASSERT_EQ(fresh->notes.size(), 1U);
  EXPECT_TRUE(fresh->notes[0].starts_with("85886.1 ms")) << fresh->notes[0];  // 2 us of 42.9 MB
  const double copied = static_cast<double>(40 * kMiB);
  EXPECT_NEAR(ms_of(*fresh, "memory") - ms_of(*kept, "memory"), 1e3 * 2e-6 * (1e6 + copied), 1e-3);
  EXPECT_DOUBLE_EQ(ms_of(*fresh, "gemm"), ms_of(*kept, "gemm"));
  calls[0].has_bias = false;
  const auto without_bias = predict_step(calls, question, model);
  ASSERT_TRUE(without_bias);
  EXPECT_NEAR(ms_of(*without_bias, "gemm") - ms_of(*kept, "gemm"), 1e3 * 2e-6 * 1e6, 1e-3);
}

}  // namespace
}  // namespace headroom::ops
