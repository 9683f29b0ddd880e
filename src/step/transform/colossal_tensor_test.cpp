#include "step/transform/colossal_tensor.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/load.h"
#include "step/train_step.h"

namespace headroom::step {
namespace {

using model::Graph;
using op::OpGroup;
using op::OpKind;

constexpr int64_t kLayers = 3;
constexpr int64_t kLinears = 6;  // of a layer of OPT's

Graph tiny(const std::string& model_type, int64_t hidden = 64) {
  const auto config = text::parse_json(
      R"({"model_type": ")" + model_type + R"(", "vocab_size": 512, "word_embed_proj_dim": )" +
          std::to_string(hidden) + R"(, "hidden_size": )" + std::to_string(hidden) +
          R"(, "ffn_dim": 128, "do_layer_norm_before": true, "num_hidden_layers": 3,
          "num_attention_heads": 2, "n_embd": 64, "n_layer": 3, "n_head": 2,
          "max_position_embeddings": 128, "n_positions": 128})",
      "test");
  model::BuildOptions build;
  build.batch = 2;
  build.sequence = 32;
  return model::build_graph({*config, "test"}, build).value();
}

struct Totals {
  double products = 0;
  double attention = 0;
  int64_t reductions = 0;
  int64_t gathers = 0;
  int64_t largest_reduction = 0;  // bytes
};

Totals totals_of(const Graph& graph) {
  Totals totals;
  const auto trace = trace_training(graph, {});
  for (const OperatorCall& call : trace.value().calls) {
    if (op::group_of(call.kind) == OpGroup::gemm) totals.products += call.flops;
    if (op::group_of(call.kind) == OpGroup::attention) totals.attention += call.flops;
    if (call.kind == OpKind::all_gather) ++totals.gathers;
    if (call.kind != OpKind::all_reduce) continue;
    ++totals.reductions;
    totals.largest_reduction = std::max(totals.largest_reduction, call.bytes_read);
  }
  return totals;
}

TEST(ColossalTensor, ProductsAreDividedAndAttentionIsNot) {
  const Totals whole = totals_of(tiny("opt"));
  const Totals part = totals_of(apply_colossal_tensor(tiny("opt"), 4).value());
  EXPECT_DOUBLE_EQ(part.products, whole.products / 4);
  EXPECT_DOUBLE_EQ(part.attention, whole.attention);
}

TEST(ColossalTensor, EveryLinearModuleSumsTheHeadToo) {
  const int steps = TrainOptions().steps;
  const Totals part = totals_of(apply_colossal_tensor(tiny("opt"), 2).value());
  EXPECT_EQ(part.reductions, steps * (kLayers * kLinears + 1));
  EXPECT_EQ(part.largest_reduction, 2 * 32 * 512 * 2);  // the logits
  // Backward gathers what went into each of them; forward, what two embeddings look up.
  EXPECT_EQ(part.gathers, steps * (kLayers * kLinears + 1 + 2));
}

TEST(ColossalTensor, WeightsHaveAPartOfTheirColumnsAndBiasesAreWhole) {
  const Graph whole = tiny("opt");
  const Graph part = apply_colossal_tensor(whole, 2).value();
  ASSERT_EQ(part.parameters.size(), whole.parameters.size());
  for (size_t i = 0; i < part.parameters.size(); ++i) {
    op::Dims expected = whole.parameters[i].shape;
    if (expected.size() == 2) expected[1] /= 2;
    EXPECT_EQ(part.parameters[i].shape, expected) << part.parameters[i].name;
  }
}

TEST(ColossalTensor, WhatItDoesNotKnowIsRefused) {
  const auto uneven = apply_colossal_tensor(tiny("opt"), 3);
  ASSERT_FALSE(uneven);
  EXPECT_NE(uneven.error().message.find("columns"), std::string::npos);
  const auto conv1d = apply_colossal_tensor(tiny("gpt2"), 2);
  ASSERT_FALSE(conv1d);
  EXPECT_NE(conv1d.error().message.find("torch.nn.Linear"), std::string::npos);
}

}  // namespace
}  // namespace headroom::step
