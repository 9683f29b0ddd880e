#include "ops/onnx_step.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "device/catalogue.h"
#include "model/tiny_onnx.h"

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
  OnnxStep step_of(const std::string& bytes, const StepSetting& setting) {
    const std::string path = ::testing::TempDir() + "onnx_step_test.onnx";
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
  EXPECT_EQ(step.calls[0].flops, 2.0 * 4 * 128 * 512 * 2048);
  EXPECT_EQ(step.calls[1].group, op::OpGroup::elementwise);
  EXPECT_EQ(step.calls[2].group, op::OpGroup::activation);
  EXPECT_EQ(step.calls[3].group_name, "pooling");
  EXPECT_EQ(step.calls[4].group_name, "unclassified");
  EXPECT_EQ(step.batch, 4);
  EXPECT_EQ(step.shape.sequence, 128);
  EXPECT_EQ(step.notes.size(), 3U);  // two open dimensions, one unknown operator
}

TEST_F(OnnxStepTest, QuantizingAndFusingTakeTimeOff) {
  const OnnxStep step = step_of(layer(), {false, 16, 512, {}});
  StepQuestion question;
  question.device = *device::DeviceCatalogue::built_in().find("h100-sxm-80gb");
  question.phase = "prefill";
  question.shape = step.shape;
  const timing::TimingModel laws = timing::TimingModel::built_in();
  const auto plain = predict_step(step.calls, question, laws);
  ASSERT_TRUE(plain) << plain.error().to_string();
  EXPECT_EQ(plain->launches, 5);
  question.fuse = true;
  const auto fused = predict_step(step.calls, question, laws);
  ASSERT_TRUE(fused);
  EXPECT_EQ(fused->launches, 4);
  EXPECT_LT(fused->step_ms, plain->step_ms);
  EXPECT_EQ(*fused->unchanged_ms, plain->step_ms);
  question.quantize = Quantize::int8;
  const auto quantized = predict_step(step.calls, question, laws);
  ASSERT_TRUE(quantized);
  EXPECT_LT(quantized->step_ms, fused->step_ms);
}

TEST_F(OnnxStepTest, ABatchForFixedSizesIsRefused) {
  const std::string path = ::testing::TempDir() + "onnx_step_test_fixed.onnx";
  ASSERT_TRUE(write_file_atomic(
      path, onnx_file(input("x", kFloat, {"1", "8"}) + node("Relu", {"x"}, {"y"}))));
  StepSetting setting;
  setting.batch = 2;
  const auto step = step_of_onnx(path, setting, *OperatorRules::load(""));
  ASSERT_FALSE(step);
  EXPECT_EQ(step.error().code, ErrorCode::usage);
}

}  // namespace
}  // namespace headroom::ops
