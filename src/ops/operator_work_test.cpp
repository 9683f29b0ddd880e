#include "ops/operator_work.h"

#include <gtest/gtest.h>

namespace headroom::ops {
namespace {

std::optional<OperatorWork> work(std::string_view name, std::string_view detail) {
  const auto inputs = parse_inputs(detail);
  return inputs ? work_of_operator(name, *inputs) : std::nullopt;
}

TEST(OperatorWork, Inputs) {
  const auto inputs = parse_inputs(R"([[64,512],[],[[2,3],[4]]] ["c10::BFloat16","Scalar",""])");
  ASSERT_TRUE(inputs);
  ASSERT_EQ(inputs->size(), 4U);
  EXPECT_EQ((*inputs)[0].sizes, (std::vector<int64_t>{64, 512}));
  EXPECT_EQ((*inputs)[0].dtype, op::DType::bf16);
  EXPECT_FALSE((*inputs)[1].dtype);
  EXPECT_EQ((*inputs)[3].sizes, (std::vector<int64_t>{4}));
  EXPECT_FALSE((*inputs)[3].dtype);
  for (const char* bad : {"", "[[1]]", "[[1]] [", "[[1]] []", "7 []", "[7] [\"float\"]",
                          "[[1.5]] [\"float\"]", "[[\"a\"]] [\"float\"]", "[[1]] [7]"}) {
    EXPECT_FALSE(parse_inputs(bad)) << bad;
  }
}

// 2 m n k, and each operand once.
TEST(OperatorWork, Products) {
  const auto mm = work("aten::mm", R"([[8,16],[16,32]] ["float","float"])");
  ASSERT_TRUE(mm);
  EXPECT_EQ(mm->flops, 2.0 * 8 * 16 * 32);
  EXPECT_EQ(mm->bytes, 4.0 * (8 * 16 + 16 * 32 + 8 * 32));
  EXPECT_TRUE(mm->is_product);
  const auto addmm =
      work("aten::addmm", R"([[32],[8,16],[16,32]] ["c10::Half","c10::Half","c10::Half"])");
  ASSERT_TRUE(addmm);
  EXPECT_EQ(addmm->flops, mm->flops);
  EXPECT_EQ(addmm->dtype, op::DType::f16);
  EXPECT_EQ(work("aten::bmm", R"([[3,8,16],[3,16,32]] ["float","float"])")->flops, 3 * mm->flops);
}

// As ONNX Runtime's profiles name them: a product with a matrix is a linear layer, one of many
// small ones is attention's.
TEST(OperatorWork, ProductsOfOnnxRuntime) {
  const auto linear = work("onnx::MatMul", R"([[1,8,16],[16,32]] ["float","float"])");
  ASSERT_TRUE(linear);
  EXPECT_EQ(linear->flops, 2.0 * 8 * 16 * 32);
  EXPECT_EQ(linear->bytes, 4.0 * (8 * 16 + 16 * 32 + 8 * 32));
  ASSERT_TRUE(linear->linear);
  EXPECT_EQ(linear->linear->m * linear->linear->n * linear->linear->k * 2, linear->flops);
  const auto many = work("onnx::MatMul", R"([[1,3,8,16],[1,3,16,8]] ["float","float"])");
  ASSERT_TRUE(many);
  EXPECT_EQ(many->flops, 2.0 * 3 * 8 * 16 * 8);
  EXPECT_FALSE(many->linear);
  EXPECT_EQ(work("onnx::Gemm", R"([[8,16],[32,16],[32]] ["float16","float16","float16"])")->flops,
            linear->flops);
  EXPECT_FALSE(work("onnx::MatMul", R"([[8,16],[15,32]] ["float","float"])"));
  EXPECT_FALSE(work("onnx::MatMul", R"([[1,8,16]] ["float"])"));
}

TEST(OperatorWork, WhatMovesBytes) {
  EXPECT_EQ(work("aten::add", R"([[8,16],[16],[]] ["float","float","Scalar"])")->bytes,
            4.0 * (8 * 16 + 16 + 8 * 16));
  EXPECT_EQ(work("aten::mul", R"([[8,16],[]] ["c10::BFloat16","Scalar"])")->bytes, 2.0 * 2 * 128);
  EXPECT_EQ(work("aten::copy_", R"([[128],[128],[]] ["c10::BFloat16","float","Scalar"])")->bytes,
            128.0 * (2 + 4));
  EXPECT_EQ(work("aten::cat", R"([[[2,3],[2,5]],[]] ["c10::BFloat16","Scalar"])")->bytes,
            2.0 * 2 * 16);
}

// What the step model counts for flash attention of a square, causal.
TEST(OperatorWork, Attention) {
  const auto attention =
      work("aten::_scaled_dot_product_flash_attention",
           R"([[2,4,128,64],[2,4,128,64],[2,4,128,64]] ["c10::Half","c10::Half","c10::Half"])");
  ASSERT_TRUE(attention);
  EXPECT_EQ(attention->flops, 4.0 * 2 * 4 * 128 * 128 * 64 / 2);
  // The operator within, to which the kernel belongs, has heads behind tokens.
  const auto within =
      work("aten::_flash_attention_forward",
           R"([[2,128,4,64],[2,128,4,64],[2,128,4,64]] ["c10::Half","c10::Half","c10::Half"])");
  ASSERT_TRUE(within);
  EXPECT_EQ(within->flops, attention->flops);
  EXPECT_EQ(within->bytes, attention->bytes);
  EXPECT_FALSE(work("aten::_flash_attention_forward",  // of several lengths, behind one another
                    R"([[300,4,64],[300,4,64],[300,4,64]] ["c10::Half","c10::Half","c10::Half"])"));
}

// FLOPs and bytes by hand, of a row of each family: what each name's row says.
TEST(OperatorWork, BackwardsAndNormalizations) {
  const std::string heads = R"([2,4,128,64])";    // batch, heads, tokens, width
  const std::string tokens = R"([2,128,4,64])";   // batch, tokens, heads, width
  constexpr double kTensor = 2.0 * 4 * 128 * 64;  // elements
  // Two products of 128 x 128 x 64, causal: half of each. Backward has five. The sums of rows, a
  // 64th of a tensor, are not counted.
  constexpr double kForward = 2 * 2.0 * 2 * 4 * 128 * 128 * 64 / 2;
  const auto halves = [](const std::string& sizes, int count) {
    std::string shapes, types;
    for (int i = 0; i < count; ++i) {
      shapes += (i > 0 ? "," : "") + sizes;
      types += std::string(i > 0 ? "," : "") + R"("c10::Half")";
    }
    return "[" + shapes + "] [" + types + "]";
  };
  const std::string two = R"([[8,16],[8,16]] ["float","float"])";
  struct Row {
    const char* name;
    std::string detail;
    double flops, bytes, written;
    bool is_product;
  };
  std::vector<Row> rows{{"aten::_scaled_dot_product_flash_attention_for_cpu", halves(heads, 3),
                         kForward, 2 * 4 * kTensor, 2 * kTensor, true}};
  const double backward_bytes = 2 * 8 * kTensor;
  const double backward_written = 2 * 2 * kTensor;
  for (const char* name : {"aten::_scaled_dot_product_flash_attention_backward",
                           "aten::_scaled_dot_product_efficient_attention_backward",
                           "aten::_scaled_dot_product_cudnn_attention_backward"}) {
    rows.push_back(
        {name, halves(heads, 5), 2.5 * kForward, backward_bytes, backward_written, true});
  }
  for (const char* name :
       {"aten::_flash_attention_backward", "aten::_efficient_attention_backward"}) {
    rows.push_back(
        {name, halves(tokens, 5), 2.5 * kForward, backward_bytes, backward_written, true});
  }
  // Two are read, one is written, each element is multiplied once: the least that it can be.
  for (const char* name :
       {"aten::threshold_backward", "aten::gelu_backward", "aten::silu_backward",
        "aten::sigmoid_backward", "aten::tanh_backward", "aten::_softmax_backward_data",
        "aten::_log_softmax_backward_data", "aten::native_layer_norm_backward",
        "aten::_fused_rms_norm_backward", "aten::native_batch_norm_backward",
        "aten::cudnn_batch_norm_backward", "aten::miopen_batch_norm_backward"}) {
    rows.push_back({name, two, 128, 4 * 3 * 128, 4 * 128, false});
  }
  for (const char* name :
       {"aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm"}) {
    rows.push_back({name, R"([[2,4,4,4],[4],[4]] ["float","float","float"])", 128, 4 * 2 * 128,
                    4 * 128, false});
  }
  for (const Row& row : rows) {
    const auto made = work(row.name, row.detail);
    ASSERT_TRUE(made) << row.name;
    EXPECT_EQ(made->flops, row.flops) << row.name;
    EXPECT_EQ(made->bytes, row.bytes) << row.name;
    EXPECT_EQ(made->written_bytes, row.written) << row.name;
    EXPECT_EQ(made->is_product, row.is_product) << row.name;
  }
  EXPECT_FALSE(work("aten::gelu_backward", R"([[8,16],[8,17]] ["float","float"])"));
  EXPECT_FALSE(work("aten::_flash_attention_backward", halves(tokens, 3)));
}

TEST(OperatorWork, NoCountWhereItCannotBeKnown) {
  EXPECT_FALSE(work("my::scan", R"([[8]] ["float"])"));
  EXPECT_FALSE(work("aten::cat", R"([[[2,3],[2,5]],[]] ["","Scalar"])"));
  EXPECT_FALSE(work("aten::cat", R"([[[2,3],[2,5]],[]] ["TensorList","Scalar"])"));
  for (const char* types : {R"(["double","double"])", R"(["long int","long int"])"}) {
    EXPECT_FALSE(work("aten::mm", std::string("[[8,16],[16,32]] ") + types)) << types;
  }
  EXPECT_FALSE(work("aten::mm", R"([[8,16],[17,32]] ["float","float"])"));
  EXPECT_FALSE(work("aten::mm", R"([[8,16]] ["float"])"));
  EXPECT_FALSE(work("aten::mm", R"([[8],[8]] ["float","float"])"));
  EXPECT_FALSE(work("aten::add", R"([[8],[9]] ["float","float"])"));
  EXPECT_FALSE(work("aten::add", R"([[-8]] ["float"])"));
  EXPECT_FALSE(work("aten::add", R"([[9223372036854775807,9]] ["float"])"));
  EXPECT_FALSE(work("aten::add", R"([[1000000000000,1000000000000,1000000000000]] ["float"])"));
  EXPECT_FALSE(work("aten::add", R"([[1,1,1,1,1,1,1,1,1,1,1]] ["float"])"));
  EXPECT_FALSE(work("aten::native_layer_norm", R"([[8,16],[],[17]] ["float","","float"])"));
  EXPECT_FALSE(work("aten::embedding", R"([[8],[4]] ["float","long int"])"));
}

}  // namespace
}  // namespace headroom::ops
