#include "model/onnx_file.h"

#include <gtest/gtest.h>

#include "model/onnx_run.h"
#include "model/tiny_onnx.h"

namespace headroom::model {
namespace {

using namespace tiny_onnx;  // NOLINT: its words are those of the format

Result<OnnxRun> run(const std::string& graph, const OnnxSetting& setting = {2, 16}) {
  static OnnxModel read;  // what the answer's names lie in
  Result<OnnxModel> parsed = parse_onnx(onnx_file(graph), "test.onnx");
  if (!parsed) return parsed.error();
  read = std::move(*parsed);
  return run_onnx(read, setting);
}

TEST(Onnx, ReadsAGraph) {
  const auto read = parse_onnx(
      onnx_file(input("x", kFloat, {"batch", "8"}) + weight("w", kFloat, {8, 4}) +
                node("MatMul", {"x", "w"}, {"y"}) + input("y", kFloat, {"batch", "4"}, 12)),
      "test.onnx");
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->producer, "test");
  EXPECT_EQ(read->opset, 17);
  ASSERT_EQ(read->nodes.size(), 1U);
  EXPECT_EQ(read->nodes[0].operation, "MatMul");
  ASSERT_EQ(read->inputs.size(), 1U);
  EXPECT_EQ(read->inputs[0].dimensions[0].name, "batch");
  EXPECT_EQ(read->inputs[0].dimensions[1].size, 8);
  ASSERT_EQ(read->weights.size(), 1U);
  EXPECT_EQ(read->weights[0].sizes, (std::vector<int64_t>{8, 4}));
}

TEST(Onnx, CountsAProduct) {
  const auto made = run(input("x", kFloat, {"batch", "seq", "8"}) + weight("w", kFloat, {8, 4}) +
                        node("MatMul", {"x", "w"}, {"y"}) + node("Relu", {"y"}, {"z"}));
  ASSERT_TRUE(made) << made.error().to_string();
  ASSERT_EQ(made->work.size(), 2U);
  const OnnxWork& product = made->work[0];
  EXPECT_EQ(product.kind, OnnxWorkKind::product);
  EXPECT_EQ(product.m, 2 * 16);
  EXPECT_EQ(product.n, 4);
  EXPECT_EQ(product.k, 8);
  EXPECT_TRUE(product.has_weight);
  EXPECT_EQ(product.flops, 2.0 * 32 * 8 * 4);
  EXPECT_EQ(product.bytes_read, 4.0 * (32 * 8 + 8 * 4));
  EXPECT_EQ(product.bytes_written, 4.0 * 32 * 4);
  EXPECT_EQ(made->work[1].operation, "Relu");
  EXPECT_EQ(made->work[1].bytes_read, 4.0 * 32 * 4);
  EXPECT_TRUE(made->has_batch);
  EXPECT_TRUE(made->has_sequence);
  EXPECT_EQ(made->open.size(), 2U);
}

// x of [batch, seq, 12] as [batch, seq, 3, 4] by the sizes that Shape says.
TEST(Onnx, SizesThatFollowFromSizesLaunchNothing) {
  const auto made =
      run(input("x", kFloat, {"batch", "seq", "12"}) + node("Shape", {"x"}, {"shape"}) +
          weight("first", kInteger, {1}, {0}) + weight("second", kInteger, {1}, {1}) +
          weight("heads", kInteger, {2}, {3, -1}) + node("Gather", {"shape", "first"}, {"b"}) +
          node("Gather", {"shape", "second"}, {"s"}) +
          node("Concat", {"b", "s", "heads"}, {"sizes"}, number("axis", 0)) +
          node("Reshape", {"x", "sizes"}, {"y"}) +
          node("Transpose", {"y"}, {"z"}, attribute("perm", {0, 2, 1, 3})) +
          node("Softmax", {"z"}, {"p"}));
  ASSERT_TRUE(made) << made.error().to_string();
  ASSERT_EQ(made->work.size(), 2U);
  EXPECT_EQ(made->work[0].operation, "Transpose");
  EXPECT_EQ(made->work[0].bytes_read, 4.0 * 2 * 16 * 12);
  EXPECT_EQ(made->work[1].m, 2 * 3 * 16);
  EXPECT_EQ(made->work[1].n, 4);
}

TEST(Onnx, ProductsOfTwoResultsAreManySmallOnes) {
  const auto made =
      run(input("q", kFloat, {"2", "3", "16", "4"}) + input("k", kFloat, {"2", "3", "4", "16"}) +
          node("MatMul", {"q", "k"}, {"scores"}));
  ASSERT_TRUE(made) << made.error().to_string();
  ASSERT_EQ(made->work.size(), 1U);
  EXPECT_EQ(made->work[0].count, 6);
  EXPECT_EQ(made->work[0].m, 16);
  EXPECT_EQ(made->work[0].k, 4);
  EXPECT_FALSE(made->work[0].has_weight);
  EXPECT_EQ(made->work[0].flops, 2.0 * 6 * 16 * 16 * 4);
  EXPECT_FALSE(made->has_batch);
}

TEST(Onnx, Convolution) {
  const auto made =
      run(input("x", kFloat, {"1", "3", "224", "224"}) + weight("w", kFloat, {64, 3, 7, 7}) +
          node("Conv", {"x", "w"}, {"y"},
               attribute("strides", {2, 2}) + attribute("pads", {3, 3, 3, 3})) +
          node("MaxPool", {"y"}, {"z"},
               attribute("kernel_shape", {3, 3}) + attribute("strides", {2, 2}) +
                   attribute("pads", {1, 1, 1, 1})));
  ASSERT_TRUE(made) << made.error().to_string();
  ASSERT_EQ(made->work.size(), 2U);
  EXPECT_EQ(made->work[0].m, 112 * 112);
  EXPECT_EQ(made->work[0].flops, 2.0 * 112 * 112 * 64 * 3 * 49);
  EXPECT_EQ(made->work[1].bytes_written, 4.0 * 64 * 56 * 56);
}

// As ONNX Runtime's dynamic quantization writes it.
TEST(Onnx, QuantizedProduct) {
  const auto made =
      run(input("x", kFloat, {"batch", "8"}) + weight("w", kByte, {8, 4}) +
          node("DynamicQuantizeLinear", {"x"}, {"q", "scale", "zero"}) +
          node("MatMulInteger", {"q", "w", "zero"}, {"i"}) +
          node("Cast", {"i"}, {"f"}, number("to", kFloat)) + node("Mul", {"f", "scale"}, {"y"}));
  ASSERT_TRUE(made) << made.error().to_string();
  ASSERT_EQ(made->work.size(), 4U);
  EXPECT_EQ(made->work[1].type, op::DType::u8);
  EXPECT_EQ(made->work[1].bytes_written, 4.0 * 2 * 4);
  EXPECT_EQ(made->work[3].bytes_read, 4.0 * (2 * 4 + 1));
}

TEST(Onnx, WhatIsMadeOfWeightsAloneIsMadeOnce) {
  const auto made = run(input("x", kFloat, {"2", "8"}) + weight("w", kFloat, {4, 8}) +
                        node("Transpose", {"w"}, {"t"}) + node("MatMul", {"x", "t"}, {"y"}));
  ASSERT_TRUE(made) << made.error().to_string();
  ASSERT_EQ(made->work.size(), 1U);
  EXPECT_TRUE(made->work[0].has_weight);
}

TEST(Onnx, AnUnknownOperatorIsNamedAndTakenAsDeclared) {
  const std::string graph =
      input("x", kFloat, {"2", "8"}) + node("MyScan", {"x"}, {"y"}) + node("Relu", {"y"}, {"z"});
  const auto refused = run(graph);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
  EXPECT_NE(refused.error().message.find("MyScan"), std::string::npos);
  const auto made = run(graph + input("y", kFloat, {"2", "8"}, 13));
  ASSERT_TRUE(made) << made.error().to_string();
  EXPECT_EQ(made->unknown, (std::vector<std::string>{"MyScan"}));
  EXPECT_EQ(made->work.size(), 2U);
}

TEST(Onnx, Impossible) {
  // Sizes that do not fit, results that depend on data, operators out of order.
  EXPECT_FALSE(run(input("x", kFloat, {"2", "8"}) + weight("w", kFloat, {9, 4}) +
                   node("MatMul", {"x", "w"}, {"y"})));
  EXPECT_FALSE(run(input("x", kFloat, {"2", "8"}) + node("NonZero", {"x"}, {"y"})));
  EXPECT_FALSE(run(input("x", kFloat, {"2", "8"}) + node("Relu", {"y"}, {"z"})));
  EXPECT_FALSE(run(input("x", kFloat, {"1125899906842624", "1125899906842624"}) +
                   node("Relu", {"x"}, {"y"})));
}

TEST(Onnx, EveryCutIsAnErrorWithAPlaceOrReads) {
  const std::string whole =
      onnx_file(input("x", kFloat, {"batch", "8"}) + weight("w", kFloat, {8, 4}) +
                node("MatMul", {"x", "w"}, {"y"}, attribute("pads", {1, 2})));
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto read = parse_onnx(whole.substr(0, size), "cut.onnx");
    if (!read) {
      EXPECT_FALSE(read.error().where.empty());
    }
  }
}

TEST(Onnx, ALengthBeyondTheFileIsNotBelieved) {
  const auto read = parse_onnx(std::string("\x3a\xff\xff\xff\xff\x0f", 6), "long.onnx");
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().where.find("byte"), std::string::npos);
}

}  // namespace
}  // namespace headroom::model
