#include "ops/onnx_step.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "device/catalogue.h"
#include "model/tiny_onnx.h"
#include "tests/tools/room_test.h"

namespace headroom::ops {
namespace {

using namespace model::tiny_onnx;  // NOLINT: its words are those of the format

// A layer of a perceptron, with an operator that nobody knows behind it.
std::string layer() {
  return onnx_file(input("x", kFloat, {"batch", "seq", "512"}) + weight("w", kFloat, {512, 2048}) +
                   weight("b", kFloat, {2048}) + node("MatMul", {"x", "w"}, {"h"}) +
                   node("Add", {"h", "b"}, {"a"}) + node("Relu", {"a"}, {"r"}) +
                   node("GlobalAveragePool", {"r"}, {"p"}) + node("MyScan", {"r"}, {"y"}) +
                   input("y", kFloat, {"batch", "seq", "2048"}, 12));
}

class OnnxStepTest : public ::testing::Test {
 protected:
  // A head behind it, so that the first product is none.
  static std::string layer_with_head() {
    return onnx_file(input("x", kFloat, {"batch", "seq", "512"}) +
                     weight("w", kFloat, {512, 2048}) + weight("h", kFloat, {2048, 512}) +
                     node("MatMul", {"x", "w"}, {"a"}) + node("Add", {"a", "a"}, {"b"}) +
                     node("Relu", {"b"}, {"r"}) + node("MatMul", {"r", "h"}, {"y"}));
  }
  static StepQuestion question_of(const OnnxStep& step) {
    StepQuestion question;
    question.device = *device::DeviceCatalogue::built_in().find("h100-sxm-80gb");
    question.phase = "run";
    question.shape = step.shape;
    question.notes = step.notes;
    return question;
  }
  OnnxStep step_of(const std::string& bytes, const StepSetting& setting) {
    const std::string path = ::testing::TempDir() + std::to_string(::getpid()) + ".onnx";
    EXPECT_TRUE(write_file_atomic(path, bytes));
    const auto step = step_of_onnx(path, setting, *OperatorRules::load(""));
    EXPECT_TRUE(step) << step.error().to_string();
    return step ? *step : OnnxStep{};
  }
};

TEST_F(OnnxStepTest, SortsAndCounts) {
  const OnnxStep step = step_of(layer(), {false, 4, 128, {}});
  ASSERT_EQ(step.calls.size(), 5U);
  EXPECT_EQ(step.calls[0].group, op::OpGroup::gemm);
  EXPECT_TRUE(step.calls[0].is_linear);
  EXPECT_FALSE(step.calls[0].is_head);  // there is more behind it than a bias
  EXPECT_TRUE(step_of(layer_with_head(), {}).calls.back().is_head);
  EXPECT_EQ(step.calls[0].flops, 2.0 * 4 * 128 * 512 * 2048);
  EXPECT_EQ(step.calls[1].group, op::OpGroup::elementwise);
  EXPECT_EQ(step.calls[2].group, op::OpGroup::activation);
  EXPECT_EQ(step.calls[3].group_name, "pooling");
  EXPECT_EQ(step.calls[4].group_name, "unclassified");
  EXPECT_EQ(step.batch, 4);
  EXPECT_EQ(step.shape.sequence, 128);
  // Two open dimensions, one unknown operator, and that nobody measured one.
  EXPECT_EQ(step.notes.size(), 4U);
}

TEST_F(OnnxStepTest, QuantizingAndFusingTakeTimeOff) {
  const OnnxStep step = step_of(layer_with_head(), {false, 16, 512, {}});
  StepQuestion question = question_of(step);
  const timing::TimingModel laws = timing::TimingModel::built_in();
  const auto plain = predict_step(step.calls, question, laws);
  ASSERT_TRUE(plain) << plain.error().to_string();
  EXPECT_EQ(plain->launches, 4);
  question.fuse = true;
  const auto fused = predict_step(step.calls, question, laws);
  ASSERT_TRUE(fused);
  EXPECT_EQ(fused->launches, 3);
  EXPECT_LT(fused->step_ms, plain->step_ms);
  EXPECT_EQ(*fused->unchanged_ms, plain->step_ms);
  question.quantize = Quantize::int8;
  const auto quantized = predict_step(step.calls, question, laws);
  ASSERT_TRUE(quantized);
  EXPECT_LT(quantized->step_ms, fused->step_ms);
  EXPECT_TRUE(quantized->notes.back().starts_with("1 of 2 products")) << quantized->notes.back();
  EXPECT_EQ(quantized->provenance, "extrapolated");
}

// What is quantized already, and what is no linear layer: nothing would change.
TEST_F(OnnxStepTest, QuantizingNothingIsRefused) {
  const OnnxStep quantized =
      step_of(onnx_file(input("x", kFloat, {"batch", "8"}) + weight("w", kByte, {8, 4}) +
                        weight("s", kFloat, {4}) + node("DequantizeLinear", {"w", "s"}, {"d"}) +
                        node("MatMul", {"x", "d"}, {"y"})),
              {});
  const OnnxStep convolved =
      step_of(onnx_file(input("x", kFloat, {"1", "3", "32", "32"}) +
                        weight("w", kFloat, {8, 3, 3, 3}) + node("Conv", {"x", "w"}, {"y"})),
              {});
  for (const OnnxStep* step : {&quantized, &convolved}) {
    StepQuestion question = question_of(*step);
    question.quantize = Quantize::int8;
    const auto run = predict_step(step->calls, question, timing::TimingModel::built_in());
    ASSERT_FALSE(run);
    EXPECT_EQ(run.error().code, ErrorCode::usage);
  }
}

// Attention over 77 keys of a text by 4096 places of an image, as diffusion models have it.
TEST_F(OnnxStepTest, AttentionWithFewerKeysThanQueries) {
  const OnnxStep step = step_of(
      onnx_file(input("q", kFloat, {"1", "4096", "320"}) + input("k", kFloat, {"1", "77", "320"}) +
                input("v", kFloat, {"1", "77", "320"}) +
                node("MultiHeadAttention", {"q", "k", "v"}, {"y"}, number("num_heads", 8))),
      {});
  ASSERT_EQ(step.calls.size(), 1U);
  EXPECT_EQ(step.calls[0].call->flops, 4.0 * 8 * 4096 * 77 * 40);
  const auto run = predict_step(step.calls, question_of(step), timing::TimingModel::built_in());
  ASSERT_TRUE(run) << run.error().to_string();
  EXPECT_EQ(run->parts[0].provenance, "extrapolated");
  EXPECT_GE(run->step_ms, run->roofline_ms);
}

// Nothing goes in, and what sends to other devices has no time here.
TEST_F(OnnxStepTest, EmptyProductsAndCollectives) {
  const OnnxStep empty =
      step_of(onnx_file(input("x", kFloat, {"0", "512"}) + weight("w", kFloat, {512, 8}) +
                        weight("h", kFloat, {8, 8}) + node("MatMul", {"x", "w"}, {"a"}) +
                        node("MatMul", {"a", "h"}, {"y"})),
              {});
  StepQuestion question = question_of(empty);
  question.quantize = Quantize::int8;
  const timing::TimingModel laws = timing::TimingModel::built_in();
  EXPECT_FALSE(predict_step(empty.calls, question, laws));  // no product that computes
  question.quantize = Quantize::none;
  EXPECT_TRUE(predict_step(empty.calls, question, laws));

  const OnnxStep sent =
      step_of(onnx_file(input("x", kFloat, {"4", "8"}) + node("AllReduce", {"x"}, {"y"}) +
                        input("y", kFloat, {"4", "8"}, 12)),
              {});
  EXPECT_TRUE(sent.calls.empty());
  EXPECT_FALSE(predict_step(sent.calls, question_of(sent), laws));
  const auto note = std::ranges::find_if(sent.notes, [](const std::string& one) {
    return one.find("sends to other devices") != std::string::npos;
  });
  EXPECT_NE(note, sent.notes.end());
}

TEST_F(OnnxStepTest, AGroupThatNobodyKnowsIsAPartToo) {
  OnnxStep step = step_of(layer(), {});
  step.calls[1].group_name = "mystery";
  const auto run = predict_step(step.calls, question_of(step), timing::TimingModel::built_in());
  ASSERT_TRUE(run);
  double ms = 0;
  for (const PredictedPart& part : run->parts) ms += part.ms;
  EXPECT_NEAR(ms, run->step_ms, 1e-9 * ms);
}

// As torch.onnx writes it (tests/data/record_dynamic_onnx.py): masks of open sizes are made anew in
// each run.
TEST_F(OnnxStepTest, ADynamicExport) {
  const std::string path = tests::source_dir() + "/tests/data/dynamic.onnx";
  StepSetting setting;
  setting.batch = 3;
  setting.seq = 128;
  const auto step = step_of_onnx(path, setting, *OperatorRules::load(""));
  ASSERT_TRUE(step) << step.error().to_string();
  EXPECT_EQ(step->batch, 3);
  EXPECT_EQ(step->shape.sequence, 128);
  double flops = 0;
  double mask_bytes = 0;
  for (const StepCall& call : step->calls) {
    EXPECT_NE(call.group_name, "unclassified");
    if (call.group == op::OpGroup::gemm) flops += call.flops;
    if (call.element_bytes == 1) mask_bytes += call.bytes_written;
  }
  const double tokens = 3 * 128;
  const double weights = 16 * 48 + 16 * 16 + 2 * 16 * 64 + 16 * 32;
  EXPECT_EQ(flops, 2 * tokens * weights + 4 * tokens * 128 * 16);
  EXPECT_GE(mask_bytes, 128 * 128 + 3 * 128 * 128);  // causal, and with the padding of each
}

TEST_F(OnnxStepTest, ASizeGivenByItsNameIsThatOfTheBatch) {
  const std::string path = tests::source_dir() + "/tests/data/dynamic.onnx";
  StepSetting setting;
  setting.dimensions["batch"] = 4;
  const auto step = step_of_onnx(path, setting, *OperatorRules::load(""));
  ASSERT_TRUE(step) << step.error().to_string();
  EXPECT_EQ(step->batch, 4);
  setting.batch = 2;
  const auto twice = step_of_onnx(path, setting, *OperatorRules::load(""));
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().message, "--dim says the batch already");
}

TEST_F(OnnxStepTest, ABatchForFixedSizesIsRefused) {
  const std::string path = ::testing::TempDir() + std::to_string(::getpid()) + ".onnx";
  ASSERT_TRUE(write_file_atomic(
      path, onnx_file(input("x", kFloat, {"1", "8"}) + node("Relu", {"x"}, {"y"}))));
  StepSetting setting;
  setting.batch = 2;
  const auto step = step_of_onnx(path, setting, *OperatorRules::load(""));
  ASSERT_FALSE(step);
  EXPECT_EQ(step.error().code, ErrorCode::usage);
  setting = {};
  const auto fixed = step_of_onnx(path, setting, *OperatorRules::load(""));
  ASSERT_TRUE(fixed);
  EXPECT_EQ(fixed->batch, 0);  // nobody knows it
  setting.dimensions["height"] = 8;
  EXPECT_FALSE(step_of_onnx(path, setting, *OperatorRules::load("")));
}

}  // namespace
}  // namespace headroom::ops
