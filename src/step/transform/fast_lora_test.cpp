// LoRA beside quantized weights in one function: which modules join, and what the step keeps.
#include "step/transform/fast_lora.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/load.h"
#include "step/gradient_bytes.h"
#include "step/train_step.h"
#include "step/transform/autocast.h"
#include "step/transform/lora.h"
#include "step/transform/quantize.h"

namespace headroom::step {
namespace {

using model::Graph;
using op::OpKind;
using op::QuantizedFormat;

constexpr int64_t kLayers = 2;
const std::vector<std::string> kAttention{"q_proj", "k_proj", "v_proj", "o_proj"};

Graph adapted(QuantizedFormat format, std::vector<std::string> targets, double dropout = 0.1,
              bool autocast = true) {
  const auto config = text::parse_json(
      R"({"model_type": "llama", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
          "max_position_embeddings": 128})",
      "test");
  model::BuildOptions build;
  build.batch = 2;
  build.sequence = 32;
  const Graph plain = model::build_graph({*config, "test"}, build).value();
  QuantizeOptions quantize;
  quantize.format = format;
  LoraOptions lora;
  lora.rank = 4;
  lora.targets = std::move(targets);
  lora.dropout = dropout;
  lora.autocast = autocast;
  lora.require_input_gradients = true;
  return apply_lora(*apply_quantization(plain, quantize), lora).value();
}

int64_t count(const Graph& graph, OpKind kind) {
  return std::ranges::count(graph.operations, kind, &model::Operation::kind);
}

TEST(FastLora, JoinsQueriesKeysAndValues) {
  for (const auto format : {QuantizedFormat::nf4_double, QuantizedFormat::gptq}) {
    for (const bool autocast : {false, true}) {
      const Graph plain = adapted(format, kAttention, 0.1, autocast);
      const Graph fused = apply_fast_lora(plain, "llama");
      EXPECT_EQ(count(fused, OpKind::fast_lora), 2 * kLayers);
      EXPECT_EQ(count(fused, OpKind::quantized_linear), 3 * kLayers);  // the feed-forward part
      const bool drops = std::ranges::any_of(fused.operations, [](const model::Operation& each) {
        return each.kind == OpKind::dropout && each.attributes.number > 0;
      });
      EXPECT_FALSE(drops);
      EXPECT_EQ(model::parameter_count(fused, true), model::parameter_count(plain, true));
    }
  }
}

TEST(FastLora, JoinsAFeedForwardLayerOfAllAdapters) {
  const Graph fused = apply_fast_lora(adapted(QuantizedFormat::gptq, {"all-linear"}), "llama");
  EXPECT_EQ(count(fused, OpKind::fast_lora), 2 * kLayers);
  EXPECT_EQ(count(fused, OpKind::fast_lora_mlp), kLayers);
  EXPECT_EQ(count(fused, OpKind::quantized_linear), 0);
  EXPECT_EQ(count(fused, OpKind::silu), 0);
  const Graph experts = apply_fast_lora(adapted(QuantizedFormat::gptq, {"all-linear"}), "mixtral");
  EXPECT_EQ(count(experts, OpKind::fast_lora_mlp), 0);
}

TEST(FastLora, LeavesIncompleteGroupsAlone) {
  const Graph plain = adapted(QuantizedFormat::gptq, {"q_proj", "v_proj"});
  const Graph fused = apply_fast_lora(plain, "llama");
  EXPECT_EQ(count(fused, OpKind::fast_lora), 0);
  EXPECT_EQ(fused.operations.size(), plain.operations.size());
}

TEST(FastLora, GivesTheSameGradients) {
  for (const auto format : {QuantizedFormat::nf4_double, QuantizedFormat::gptq}) {
    for (const auto& targets : {kAttention, std::vector<std::string>{"all-linear"}}) {
      for (const auto policy : {CheckpointPolicy::none, CheckpointPolicy::full}) {
        TrainOptions options;
        options.checkpointing = policy;
        const Graph plain = adapted(format, targets);
        const auto before = trace_training(apply_autocast(plain, {}), options);
        const auto after =
            trace_training(apply_autocast(apply_fast_lora(plain, "llama"), {}), options);
        ASSERT_TRUE(before && after);
        EXPECT_TRUE(memory::validate_trace(after->memory));
        EXPECT_EQ(gradient_bytes(*after), gradient_bytes(*before));
      }
    }
  }
}

}  // namespace
}  // namespace headroom::step
