#include "timing/checkpoint_type.h"

#include <gtest/gtest.h>

#include "model/builtin.h"

namespace headroom::timing {
namespace {

std::optional<std::string> type_of(const char* quantization) {
  const auto json =
      *text::parse_json(std::string(R"({"model_type": "llama")") + quantization + "}", "c");
  return *checkpoint_type_of(text::JsonView(json, "config.json"));
}

TEST(CheckpointType, IsThatOfItsConfiguration) {
  EXPECT_EQ(type_of(""), std::nullopt);
  EXPECT_EQ(type_of(R"(, "quantization_config": {"quant_method": "fp8"})"), "fp8");
  EXPECT_EQ(type_of(R"(, "quantization_config": {"quant_method": "awq", "bits": 4})"), "int4");
  EXPECT_EQ(type_of(R"(, "quantization_config": {"quant_method": "gptq", "bits": 8})"),
            std::nullopt);
  EXPECT_EQ(type_of(R"(, "quantization_config": {"quant_method": "new"})"), std::nullopt);
}

// deepseek-ai/DeepSeek-V3's config.json: {"quant_method": "fp8", "weight_block_size": [128, 128]}.
TEST(CheckpointType, OfModelsThatCameInEightBits) {
  for (const char* const name : {"deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-R1"}) {
    EXPECT_EQ(*checkpoint_type_of(model::resolve_model(name)->view()), "fp8") << name;
  }
  EXPECT_EQ(*checkpoint_type_of(model::resolve_model("Qwen/Qwen2.5-7B")->view()), std::nullopt);
}

TEST(CheckpointType, WhatIsNotKnownIsNamed) {
  const auto json =
      *text::parse_json(R"({"quantization_config": {"quant_method": "compressed-tensors"}})", "c");
  EXPECT_EQ(*quantization_method_of(text::JsonView(json, "c")), "compressed-tensors");
  EXPECT_EQ(*quantization_method_of(model::resolve_model("Qwen/Qwen2.5-7B")->view()), std::nullopt);
}

TEST(CheckpointType, SetsWhatProductsRead) {
  DecodeVariant variant;
  set_weight_type("fp8", variant);
  EXPECT_EQ(variant.weight_element_bytes, 1);
  EXPECT_EQ(variant.product_rate, device::Rate::fp8);
  DecodeVariant unpacked;
  set_weight_type("int4", unpacked);
  EXPECT_EQ(unpacked.weight_element_bytes, kInt4Bytes);
  EXPECT_FALSE(unpacked.product_rate);
}

}  // namespace
}  // namespace headroom::timing
