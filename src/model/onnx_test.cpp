#include "model/onnx_file.h"

#include <gtest/gtest.h>

#include <algorithm>

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
  ASSERT_EQ(made->open.size(), 2U);
  EXPECT_EQ(made->open[0].role, OnnxOpenSize::Role::batch);
  EXPECT_EQ(made->open[1].role, OnnxOpenSize::Role::sequence);
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
  EXPECT_TRUE(made->open.empty());
}

TEST(Onnx, OneNameHasOneSize) {
  // By the names: N is always first, L is second of the first input.
  const auto made = run(input("positions", kInteger, {"L"}) + input("ids", kInteger, {"N", "L"}) +
                        node("Add", {"ids", "positions"}, {"y"}));
  ASSERT_TRUE(made) << made.error().to_string();
  EXPECT_EQ(made->work[0].bytes_written, 8.0 * 2 * 16);
  // Sums of names: what was there before is none.
  const auto past =
      run(input("x", kFloat, {"batch", "sequence"}) +
          input("mask", kFloat, {"batch", "past_sequence + sequence"}) +
          input("cache", kFloat, {"batch", "past_sequence"}) + node("Mul", {"x", "mask"}, {"y"}));
  ASSERT_TRUE(past) << past.error().to_string();
  EXPECT_EQ(past->work[0].bytes_read, 4.0 * 2 * (2 * 16));
  OnnxSetting setting{2, 16};
  setting.dimensions["past_sequence"] = 0;
  setting.dimensions["sequence"] = 5;
  const auto given = run(input("x", kFloat, {"batch", "sequence"}) +
                             input("mask", kFloat, {"batch", "past_sequence + sequence"}) +
                             node("Mul", {"x", "mask"}, {"y"}),
                         setting);
  ASSERT_TRUE(given) << given.error().to_string();
  EXPECT_EQ(given->work[0].bytes_written, 4.0 * 2 * 5);
  // It is a sequence still, of the length that was given.
  const auto length = std::ranges::find(given->open, std::string("sequence"), &OnnxOpenSize::name);
  ASSERT_NE(length, given->open.end());
  EXPECT_EQ(length->role, OnnxOpenSize::Role::sequence);
  EXPECT_TRUE(length->is_given);
}

TEST(Onnx, SizesOfInputsAlone) {
  const auto sizes = [](const std::string& graph) {
    const auto parsed = parse_onnx(onnx_file(graph), "test.onnx");
    EXPECT_TRUE(parsed);
    return onnx_input_sizes(*parsed, {2, 16});
  };
  // A weight's default is none of them; what nobody knows to run is not looked at.
  const auto made = sizes(input("x", kFloat, {"3", "L"}) + input("w", kFloat, {"8", "4"}) +
                          weight("w", kFloat, {8, 4}) + input("y", kFloat, {"L", "N"}) +
                          node("Nobodys", {"x", "y"}, {"z"}));
  ASSERT_TRUE(made) << made.error().to_string();
  EXPECT_EQ(*made, (std::vector<std::vector<int64_t>>{{3, 16}, {16, 16}}));
  const auto refused =
      sizes(input("x", kFloat, {"batch", "3", "height"}) + node("Relu", {"x"}, {"y"}));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().hint, "--dim height=N");
}

TEST(Onnx, SizesThatNobodySaysAreAskedFor) {
  const std::string image =
      input("x", kFloat, {"batch", "3", "height", "width"}) + node("Relu", {"x"}, {"y"});
  const auto refused = run(image);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::usage);
  EXPECT_EQ(refused.error().hint, "--dim height=N,width=N");
  OnnxSetting setting{2, 16};
  setting.dimensions = {{"height", 32}, {"width", 64}};
  const auto made = run(image, setting);
  ASSERT_TRUE(made) << made.error().to_string();
  EXPECT_EQ(made->work[0].bytes_read, 4.0 * 2 * 3 * 32 * 64);
  EXPECT_EQ(made->open[1].size, 32);
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

// The mask of a model with open sizes is made anew in each run: of sizes, but no number of the
// graph.
TEST(Onnx, WhatFollowsFromSizesIsWorkUnlessItIsKnown) {
  const auto made =
      run(input("x", kFloat, {"batch", "seq"}) + node("Shape", {"x"}, {"shape"}) +
          weight("one", kInteger, {}, {1}) + weight("zero", kInteger, {}, {0}) +
          node("Gather", {"shape", "one"}, {"s"}) + node("Range", {"zero", "s", "one"}, {"row"}) +
          weight("axis", kInteger, {1}, {1}) + node("Unsqueeze", {"row", "axis"}, {"column"}) +
          node("Expand", {"column", "big"}, {"wide"}) + weight("big", kInteger, {2}, {16, 4096}) +
          node("LessOrEqual", {"wide", "zero"}, {"mask"}));
  ASSERT_TRUE(made) << made.error().to_string();
  ASSERT_EQ(made->work.size(), 2U);
  EXPECT_EQ(made->work[0].operation, "Expand");
  EXPECT_EQ(made->work[0].bytes_written, 8.0 * 16 * 4096);
  EXPECT_EQ(made->work[1].operation, "LessOrEqual");
}

// 12 heads of 64: what comes of the projection is read by attention, the weight is not.
TEST(Onnx, ProjectedAttentionReadsItsWeightsOnce) {
  const auto made = run(input("x", kFloat, {"1", "128", "768"}) + weight("w", kFloat, {768, 2304}) +
                        weight("b", kFloat, {2304}) +
                        node("Attention", {"x", "w", "b"}, {"y"},
                             number("num_heads", 12) + bytes(7, std::string("com.microsoft"))));
  ASSERT_TRUE(made) << made.error().to_string();
  ASSERT_EQ(made->work.size(), 2U);
  const double rows = 4.0 * 128 * 768;
  EXPECT_EQ(made->work[0].bytes_read, rows + 4.0 * (768 * 2304 + 2304));
  EXPECT_EQ(made->work[0].bytes_written, 3 * rows);
  EXPECT_EQ(made->work[1].bytes_read, 3 * rows);
  EXPECT_EQ(made->work[1].bytes_written, rows);
  EXPECT_EQ(made->work[1].flops, 4.0 * 12 * 128 * 128 * 64);
}

TEST(Onnx, KeysOfAnEarlierRunAreLookedAt) {
  const std::string new_ones =
      input("q", kFloat, {"1", "4", "64"}) + input("k", kFloat, {"1", "4", "64"}) +
      input("v", kFloat, {"1", "4", "64"}) + input("pk", kFloat, {"1", "8", "100", "8"}) +
      input("pv", kFloat, {"1", "8", "100", "8"});
  const std::string eight = number("num_heads", 8);
  const auto many =
      run(new_ones + node("MultiHeadAttention", {"q", "k", "v", "", "", "", "pk", "pv"},
                          {"y", "nk", "nv"}, eight));
  ASSERT_TRUE(many) << many.error().to_string();
  EXPECT_EQ(many->work[0].k, 104);
  EXPECT_EQ(many->work[0].bytes_written, 4.0 * (4 * 64 + 2 * 104 * 64));
  const auto own =
      run(new_ones + node("Attention", {"q", "k", "v", "", "pk", "pv"}, {"y", "nk", "nv"},
                          number("q_num_heads", 8) + number("kv_num_heads", 8)));
  ASSERT_TRUE(own) << own.error().to_string();
  EXPECT_EQ(own->work[0].k, 104);
  EXPECT_EQ(own->work[0].bytes_written, 4.0 * (4 * 64 + 2 * 104 * 64));
}

// The last query sees all keys, and each before it one less.
TEST(Onnx, CausalAttentionIsOfPairs) {
  const auto flops = [](const char* tokens, const char* past) {
    const auto made =
        run(input("q", kFloat, {"1", tokens, "64"}) + input("k", kFloat, {"1", tokens, "16"}) +
            input("v", kFloat, {"1", tokens, "16"}) + input("pk", kFloat, {"1", "2", past, "8"}) +
            input("pv", kFloat, {"1", "2", past, "8"}) +
            node("GroupQueryAttention", {"q", "k", "v", "pk", "pv"}, {"y", "nk", "nv"},
                 number("num_heads", 8) + number("kv_num_heads", 2)));
    return made ? made->work[0].flops : -1;
  };
  EXPECT_EQ(flops("1", "100"), 4.0 * 64 * 101);
  EXPECT_EQ(flops("3", "100"), 4.0 * 64 * (101 + 102 + 103));
}

// Letters of both operands and the result are the batch, as in attention's scores.
TEST(Onnx, EinsumIsAProductOfItsLetters) {
  const auto of = [](const char* equation, const char* k_of) {
    return run(input("a", kFloat, {"2", "16", "3", "4"}) +
               input("b", kFloat, {"2", "5", "3", k_of}) +
               node("Einsum", {"a", "b"}, {"y"}, word("equation", equation)));
  };
  const auto made = of("bqhd,bkhd->bhqk", "4");
  ASSERT_TRUE(made) << made.error().to_string();
  ASSERT_EQ(made->work.size(), 1U);
  EXPECT_EQ(made->work[0].count, 6);
  EXPECT_EQ(made->work[0].m, 16);
  EXPECT_EQ(made->work[0].n, 5);
  EXPECT_EQ(made->work[0].k, 4);
  EXPECT_EQ(made->work[0].flops, 2.0 * 6 * 16 * 5 * 4);
  // Results that no machine holds, though nobody takes them.
  EXPECT_FALSE(run(input("x", kFloat, {"1125899906842624"}) +
                   input("y", kFloat, {"1125899906842624"}) +
                   node("Einsum", {"x", "y"}, {""}, word("equation", "a,b->ab"))));
}

// Quantized within, and weights of half a byte.
TEST(Onnx, TypesThatProductsAreComputedIn) {
  const auto dynamic =
      run(input("x", kFloat, {"2", "8"}) + weight("w", kByte, {8, 4}) + weight("s", kFloat, {4}) +
          node("DynamicQuantizeMatMul", {"x", "w", "s"}, {"y"}));
  ASSERT_TRUE(dynamic) << dynamic.error().to_string();
  EXPECT_EQ(dynamic->work[0].type, op::DType::i8);
  EXPECT_EQ(dynamic->work[0].bytes_written, 4.0 * 2 * 4);
  constexpr int kInt4 = 22;
  const auto packed =
      run(input("x", kFloat, {"2", "8"}) + weight("w", kInt4, {8, 4}) + weight("s", kFloat, {4}) +
          node("DequantizeLinear", {"w", "s"}, {"d"}) + node("MatMul", {"x", "d"}, {"y"}));
  ASSERT_TRUE(packed) << packed.error().to_string();
  EXPECT_EQ(packed->work[0].bytes_read, 8 * 4 / 2 + 4.0 * 4);
  EXPECT_EQ(packed->work[0].bytes_written, 4.0 * 8 * 4);
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

// A few bytes a node that each compute thousands of numbers, and items that are larger in memory
// than in the file: both are refused in time.
TEST(Onnx, WhatAFileMayCostIsBounded) {
  std::vector<int64_t> sizes(60, 1);
  sizes.back() = 4096;
  std::string graph = weight("ones", kInteger, sizes, std::vector<int64_t>(4096, 1));
  for (int i = 0; i < 1000; ++i) graph += node("Add", {"ones", "ones"}, {"y"});
  const auto computed = run(graph);
  ASSERT_FALSE(computed);
  EXPECT_NE(computed.error().message.find("computes that many numbers"), std::string::npos);

  std::string attributes;
  for (int i = 0; i < 4000; ++i) attributes += bytes(5, "");
  const std::string one = node("Relu", {"x"}, {"y"}, attributes);
  std::string many;
  for (int i = 0; i < 1000; ++i) many += one;
  const auto read = parse_onnx(onnx_file(many), "many.onnx");
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("not believed"), std::string::npos);
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
