#include "step/transform/lora.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/builder.h"
#include "step/train_step.h"
#include "step/transform/linear_site.h"

namespace headroom::step {
namespace {

using model::Graph;
using model::GraphBuilder;
using model::ParameterRole;
using model::Var;

// An embedding, two linear modules, one of them with a bias, and a loss.
Graph small_model() {
  GraphBuilder g;
  {
    const Var table = g.parameter("embed.weight", {32, 8}, ParameterRole::embedding);
    const Var up = g.parameter("layers.0.up.weight", {16, 8}, ParameterRole::linear);
    const Var bias = g.parameter("layers.0.up.bias", {16}, ParameterRole::bias);
    const Var down = g.parameter("layers.0.down.weight", {8, 16}, ParameterRole::linear);
    const Var head = g.tied("head.weight", table, ParameterRole::lm_head);
    const Var ids = g.input("input_ids", {2, 4}, model::DType::i64);
    Var x = g.embedding(table, ids);
    x = g.linear(x, up, bias);
    x = g.linear(x, down);
    const Var logits = g.view(g.linear(x, head), {-1, 32});
    const Var loss = g.cross_entropy(logits, g.view(ids, {-1}));
    g.set_outputs(loss, logits, {});
  }
  return g.finish();
}

// With a module of its own before it that is never called, and a table that is not read.
Graph with_idle_module() {
  GraphBuilder g;
  {
    g.parameter("tower.up.weight", {24, 8}, ParameterRole::linear);
    g.parameter("tower.up.bias", {24}, ParameterRole::bias);
    g.parameter("tower.positions.weight", {4, 8}, ParameterRole::other);
    const Var up = g.parameter("layers.0.up.weight", {16, 8}, ParameterRole::linear);
    const Var x = g.input("x", {2, 8}, std::nullopt);
    const Var loss = g.sum(g.linear(x, up), {0, 1}, false);
    g.set_outputs(loss, loss, {});
  }
  return g.finish();
}

LoraOptions rank_of_two(std::vector<std::string> targets) {
  LoraOptions options;
  options.rank = 2;
  options.targets = std::move(targets);
  return options;
}

std::vector<std::string> names_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const model::Parameter& parameter : graph.parameters) names.push_back(parameter.name);
  return names;
}

TEST(Lora, AModuleThatIsNeverCalledIsAdaptedToo) {
  const auto graph = apply_lora(with_idle_module(), rank_of_two({"all-linear"}));
  ASSERT_TRUE(graph);
  const auto names = names_of(*graph);
  EXPECT_EQ(std::ranges::count_if(
                names, [](const auto& n) { return n.find("tower.up.lora") != std::string::npos; }),
            2);
  EXPECT_FALSE(std::ranges::any_of(
      names, [](const auto& n) { return n.find("positions.lora") != std::string::npos; }));
  const auto idle = idle_linear_sites(with_idle_module());
  ASSERT_EQ(idle.size(), 1U);
  EXPECT_EQ(idle[0].in_features, 8);
  EXPECT_EQ(idle[0].out_features, 24);
  EXPECT_EQ(idle[0].last_parameter, 1U);
}

TEST(Lora, NamesAndOrderAreThoseOfPeft) {
  const auto graph = apply_lora(small_model(), rank_of_two({"up"}));
  ASSERT_TRUE(graph);
  const std::vector<std::string> expected{"base_model.model.embed.weight",
                                          "base_model.model.layers.0.up.base_layer.weight",
                                          "base_model.model.layers.0.up.base_layer.bias",
                                          "base_model.model.layers.0.up.lora_A.default.weight",
                                          "base_model.model.layers.0.up.lora_B.default.weight",
                                          "base_model.model.layers.0.down.weight",
                                          "base_model.model.head.weight"};
  EXPECT_EQ(names_of(*graph), expected);
  EXPECT_EQ(graph->parameters[6].tied_to, 0U);
  EXPECT_EQ(model::parameter_count(*graph, true), 2 * 8 + 16 * 2);
}

TEST(Lora, TheHeadIsNoneOfAllLinearModules) {
  const auto graph = apply_lora(small_model(), rank_of_two({"all-linear"}));
  ASSERT_TRUE(graph);
  EXPECT_EQ(model::parameter_count(*graph, true), 2 * (8 + 16) + 2 * (16 + 8));
}

TEST(Lora, ATargetIsAWholeNameOrTheEndOfOne) {
  EXPECT_TRUE(apply_lora(small_model(), rank_of_two({"0.up"})));
  EXPECT_TRUE(apply_lora(small_model(), rank_of_two({"layers.0.up"})));
  const auto missing = apply_lora(small_model(), rank_of_two({"p"}));
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("named p"), std::string::npos);
}

// They would be passed over, or stand beside the other module of the weight.
TEST(Lora, EmbeddingsAndTiedHeadsAreRefusedByName) {
  for (const auto& [target, words] :
       {std::pair("embed", "embed is an embedding"), {"head", "head has its weight from embed"}}) {
    const auto refused = apply_lora(small_model(), rank_of_two({"up", target}));
    ASSERT_FALSE(refused) << target;
    EXPECT_NE(refused.error().message.find(words), std::string::npos) << refused.error().message;
  }
}

TEST(Lora, OnlyAdaptersGetGradientsAndStates) {
  const auto graph = apply_lora(small_model(), rank_of_two({"up", "down"}));
  ASSERT_TRUE(graph);
  const auto trace = trace_training(*graph, {});
  ASSERT_TRUE(trace);
  int64_t gradients = 0;
  for (const memory::BufferInfo& buffer : trace->memory.buffers) {
    if (buffer.category == memory::Category::gradient) gradients += buffer.requested_bytes;
  }
  const int64_t adapters = 2 * (8 + 16) + 2 * (16 + 8);
  EXPECT_EQ(gradients, 2 * 4 * adapters);  // two steps in float32
}

// Under FSDP1 the weight that peft asks is a shard of another type than the one it computes with.
TEST(Lora, CastsTheInputToTheTypeThatPeftSees) {
  const auto casts = [](std::optional<model::DType> input_dtype) {
    LoraOptions options = rank_of_two({"up"});
    options.adapter_dtype = model::DType::bf16;
    options.input_dtype = input_dtype;
    const Graph graph = apply_lora(small_model(), options).value();
    TrainOptions train;
    train.weights = model::DType::bf16;
    const StepTrace trace = trace_training(graph, train).value();
    return std::ranges::count(trace.calls, op::OpKind::cast, &OperatorCall::kind);
  };
  EXPECT_GT(casts(model::DType::f32), casts({}));
}

TEST(Lora, RefusesARankThatNoMatrixCouldHave) {
  LoraOptions options = rank_of_two({"up"});
  for (const int64_t rank : {int64_t{0}, int64_t{-1}, int64_t{1} << 40}) {
    options.rank = rank;
    EXPECT_FALSE(apply_lora(small_model(), options)) << rank;
  }
}

TEST(Lora, NamesTheArchitectureThatPeftDoesNotKnow) {
  LoraOptions options = rank_of_two({});
  options.model_type = "nothing";
  const auto graph = apply_lora(small_model(), options);
  ASSERT_FALSE(graph);
  EXPECT_NE(graph.error().message.find("nothing"), std::string::npos);
}

}  // namespace
}  // namespace headroom::step
