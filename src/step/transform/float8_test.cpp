// Which weights are in float8, and what that changes in a step.
#include "step/transform/float8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "step/tiny_llama.h"
#include "step/train_step.h"

namespace headroom::step {
namespace {

model::Graph llama(int64_t features) { return tiny_llama({.features = features, .sequence = 64}); }

TrainOptions sharded_options() {
  TrainOptions options;
  options.environment.attention = op::AttentionBackend::flash;
  options.weights = op::DType::f32;
  options.compiled.layers = true;
  options.steps = 1;
  FsdpOptions fsdp;
  fsdp.ranks = 2;
  fsdp.weights = op::DType::f32;
  fsdp.compute = op::DType::bf16;
  options.parallel = fsdp;
  return options;
}

TEST(Float8, IsOfLayersLinearModules) {
  const model::Graph graph = apply_float8(llama(224)).value();
  for (const model::Parameter& parameter : graph.parameters) {
    const bool is_linear = parameter.name.ends_with("_proj.weight");
    EXPECT_EQ(parameter.float8, is_linear) << parameter.name;
  }
}

TEST(Float8, TakesMultiplesOfSixteen) {
  const model::Graph graph = apply_float8(llama(200)).value();
  for (const model::Parameter& parameter : graph.parameters) {
    EXPECT_EQ(parameter.float8, parameter.name.find("self_attn") != std::string::npos)
        << parameter.name;
  }
  model::Graph none = llama(224);
  for (model::Operation& operation : none.operations) {
    if (operation.kind == op::OpKind::linear) operation.kind = op::OpKind::quantized_linear;
  }
  EXPECT_FALSE(apply_float8(none));
}

// Of a layer all but the norms are gathered in half as many bytes.
TEST(Float8, IsGatheredSo) {
  constexpr int64_t kLayer = 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 224;  // weights
  const StepTrace wide = trace_training(llama(224), sharded_options()).value();
  const StepTrace narrow =
      trace_training(apply_float8(llama(224)).value(), sharded_options()).value();
  const auto gathers = [](const StepTrace& trace, int64_t bytes) {
    return std::ranges::count_if(trace.calls, [&](const OperatorCall& call) {
      return call.kind == op::OpKind::all_gather && call.bytes_written == bytes;
    });
  };
  EXPECT_EQ(gathers(wide, 2 * kLayer + 2 * 2 * 64), 4);  // two layers, there and back
  EXPECT_EQ(gathers(narrow, kLayer + 2 * 2 * 64), 4);
  const model::Graph late = apply_float8(llama(224), {.weights = false}).value();
  const StepTrace cast_behind = trace_training(late, sharded_options()).value();
  EXPECT_EQ(gathers(cast_behind, 2 * kLayer + 2 * 2 * 64), 4);
}

// The same products, on operands of a byte.
TEST(Float8, MultipliesAsOften) {
  const auto products = [](const StepTrace& trace, int bytes) {
    return std::ranges::count_if(trace.calls, [&](const OperatorCall& call) {
      return call.kind == op::OpKind::mm && call.element_bytes == bytes;
    });
  };
  const StepTrace wide = trace_training(llama(224), sharded_options()).value();
  const StepTrace narrow =
      trace_training(apply_float8(llama(224)).value(), sharded_options()).value();
  constexpr int kOfLayers = 2 * 7 * 3;
  EXPECT_EQ(products(narrow, 1), kOfLayers);
  EXPECT_EQ(products(narrow, 2), products(wide, 2) - kOfLayers);
}

}  // namespace
}  // namespace headroom::step
