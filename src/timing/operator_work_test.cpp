// Operators that say their rows, queries and keys, and those that leave them to the step.
#include "timing/operator_work.h"

#include <gtest/gtest.h>

namespace headroom::timing {
namespace {

using op::OpGroup;

// Of an encoder, beside whose tokens a decoder has a quarter as many.
constexpr StepShape kStep{.tokens = 2048, .sequence = 512, .heads = 16, .kv_heads = 16};

TEST(OperatorWork, AProductHasTheRowsItSays) {
  // 512 x 3072 by 1024: nearer to the step's tokens is its width.
  OperatorWork work{OpGroup::gemm, 2.0 * 512 * 3072 * 1024, 2.0 * (512 * 1024 + 3072 * 1024),
                    2.0 * 512 * 3072, 2};
  EXPECT_EQ(product_shape(work, kStep).m, 3072);
  work.rows = 512;
  const GemmShape said = product_shape(work, kStep);
  EXPECT_EQ(said.m, 512);
  EXPECT_EQ(said.n, 3072);
  EXPECT_EQ(said.k, 1024);
}

// Operands of one byte, and a result of the step's two.
TEST(OperatorWork, AProductInFp8HasTheSameSizes) {
  OperatorWork work{OpGroup::gemm, 2.0 * 512 * 3072 * 1024, 1.0 * (512 * 1024 + 3072 * 1024),
                    2.0 * 512 * 3072, 1};
  work.kind = op::OpKind::mm;
  work.rows = 512;
  const Call call = call_of(work, kStep);
  const auto& said = std::get<GemmShape>(call.shape);
  EXPECT_EQ(said.m, 512);
  EXPECT_EQ(said.n, 3072);
  EXPECT_EQ(said.k, 1024);
  EXPECT_EQ(call.rate, device::Rate::fp8);
}

TEST(OperatorWork, AttentionHasItsOwnQueriesAndKeys) {
  constexpr double kBytes = 2.0 * 4 * 128 * 16 * 64;
  OperatorWork work{OpGroup::attention, 4.0 * 4 * 16 * 64 * 128 * 512, 3 * kBytes, kBytes, 2};
  work.rows = 128;
  work.keys = 512;
  const auto shape = std::get<AttentionShape>(call_of(work, kStep).shape);
  EXPECT_EQ(shape.batch, 4);
  EXPECT_EQ(shape.heads, 16);
  EXPECT_EQ(shape.head_dim, 64);
  EXPECT_EQ(shape.queries, 128);
  EXPECT_EQ(shape.context, 512);
}

TEST(OperatorWork, HeadsOfKeysAreAsManyWhereNobodySays) {
  OperatorWork work{OpGroup::attention, 4.0 * 4 * 16 * 64 * 512 * 512 / 2, 6e6, 2.0 * 2048 * 1024,
                    2};
  StepShape shape = kStep;
  shape.kv_heads = 0;
  EXPECT_EQ(std::get<AttentionShape>(call_of(work, shape).shape).kv_heads, 16);
  shape.kv_heads = 4;
  EXPECT_EQ(std::get<AttentionShape>(call_of(work, shape).shape).kv_heads, 4);
}

// A decoder that is longer than its encoder: each of its tokens sees all that was encoded.
// 64 wide each, where a single head would be 1024.
TEST(OperatorWork, HeadsAreThoseOfTheLanguageModelBesideATower) {
  const auto config = text::parse_json(
      R"({"text_config": {"num_attention_heads": 16, "num_key_value_heads": 4},
          "vision_config": {"num_attention_heads": 12}})",
      "config.json");
  StepShape shape{.tokens = 2048, .sequence = 512};
  ASSERT_TRUE(read_heads(text::JsonView(*config, "config.json"), shape));
  OperatorWork work{OpGroup::attention, 4.0 * 4 * 16 * 64 * 512 * 512 / 2, 6e6, 2.0 * 2048 * 1024,
                    2};
  const auto attention = std::get<AttentionShape>(call_of(work, shape).shape);
  EXPECT_EQ(attention.heads, 16);
  EXPECT_EQ(attention.kv_heads, 4);
  EXPECT_EQ(attention.head_dim, 64);
}

TEST(OperatorWork, CrossAttentionMayHaveMoreQueriesThanKeys) {
  constexpr double kRows = 2.0 * 4 * 16 * 64;
  OperatorWork work{OpGroup::attention, 4.0 * 4 * 16 * 64 * 512 * 128, kRows * (512 + 2 * 128),
                    kRows * 512, 2};
  work.rows = 512;
  work.keys = 128;
  const Call call = call_of(work, kStep);
  EXPECT_EQ(std::get<AttentionShape>(call.shape).queries, 512);
  EXPECT_EQ(std::get<AttentionShape>(call.shape).context, 128);
  EXPECT_EQ(attention_call(std::get<AttentionShape>(call.shape), device::Rate::bf16, 2).flops,
            work.flops);
}

TEST(OperatorWork, RowsAreAsWideAsTheyAre) {
  OperatorWork work{OpGroup::normalization, 0, 2.0 * 512 * 4096, 2.0 * 512 * 4096};
  EXPECT_EQ(std::get<RowsShape>(call_of(work, kStep).shape).width, 1024);
  work.rows = 512;
  const auto said = std::get<RowsShape>(call_of(work, kStep).shape);
  EXPECT_EQ(said.rows, 512);
  EXPECT_EQ(said.width, 4096);
}

// GPT-2's activation, as transformers writes it out, has a tanh of its own.
TEST(OperatorWork, ATanhIsTimedAsTheActivationThatIsNearlyAllTanh) {
  OperatorWork work{OpGroup::activation, 0, 4.0 * 256 * 3072, 4.0 * 256 * 3072, 4};
  work.kind = op::OpKind::tanh;
  EXPECT_EQ(call_of(work, kStep).kind, OperatorClass::gelu_tanh);
  work.kind = op::OpKind::relu;
  EXPECT_EQ(call_of(work, kStep).kind, OperatorClass::activation);
}

}  // namespace
}  // namespace headroom::timing
