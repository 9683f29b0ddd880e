// Which part of a layer each tensor parallel device has, and what is summed up among them.
#include "timing/decode_step.h"

#include <gtest/gtest.h>

#include "text/json.h"

namespace headroom::timing {
namespace {

// Heads that are wider together (256) than what a layer passes on (96).
constexpr std::string_view kWideHeads = R"({
  "model_type": "qwen3", "vocab_size": 1000, "hidden_size": 96, "intermediate_size": 320,
  "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32,
  "max_position_embeddings": 1024, "tie_word_embeddings": false})";

DecodeWork work_on(int64_t devices, int64_t batch) {
  const auto config = *text::parse_json(kWideHeads, "config.json");
  DecodeOptions options;
  options.variant.tensor_parallel = devices;
  auto work = decode_work(text::JsonView(config, "config.json"), options, batch);
  EXPECT_TRUE(work) << work.error().to_string();
  return work ? *work : DecodeWork{};
}

GemmShape product(const DecodeWork& work, size_t i) {
  return std::get<GemmShape>(work.matmul.at(i).call.shape);
}

// q, k, v, o, gate, up, down: the first three, and gate and up, by their outputs.
TEST(DecodeStep, ProductsAreDividedWhereHeadsAndInnerWidthAre) {
  const DecodeWork one = work_on(1, 4);
  const DecodeWork two = work_on(2, 4);
  ASSERT_EQ(one.matmul.size(), 3 * 7 + 1U);
  ASSERT_EQ(two.matmul.size(), one.matmul.size());
  for (size_t i = 0; i < one.matmul.size(); ++i) {
    const bool is_of_parts = i < 21 && (i % 7 == 3 || i % 7 == 6);  // o and down
    const GemmShape whole = product(one, i);
    const GemmShape half = product(two, i);
    EXPECT_EQ(half.n, is_of_parts ? whole.n : whole.n / 2) << i;
    EXPECT_EQ(half.k, is_of_parts ? whole.k / 2 : whole.k) << i;
  }
  EXPECT_EQ(product(one, 3).k, 256);
  EXPECT_EQ(product(one, 3).n, 96);
}

TEST(DecodeStep, WhatIsSummedUpIsAsWideAsTheLayer) {
  EXPECT_TRUE(work_on(1, 4).collectives.empty());
  const DecodeWork two = work_on(2, 4);
  ASSERT_EQ(two.collectives.size(), 1U);
  EXPECT_EQ(two.collectives[0].times, 2 * 3);
  const auto shape = std::get<CollectiveShape>(two.collectives[0].call.shape);
  EXPECT_EQ(shape.group, 2);
  EXPECT_EQ(shape.message, 4 * 96 * 2);
}

TEST(DecodeStep, NormsAndTheEmbeddingAreAsWideAsTheLayer) {
  for (const CountedCall& one : work_on(2, 4).other) {
    const auto shape = std::get<RowsShape>(one.call.shape);
    if (one.call.kind == OperatorClass::rms_norm || one.call.kind == OperatorClass::embedding) {
      EXPECT_EQ(shape.width, 96);
    }
    if (one.call.kind == OperatorClass::rope) {
      EXPECT_EQ(shape.width, 128);
    }
  }
}

}  // namespace
}  // namespace headroom::timing
