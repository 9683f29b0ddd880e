#include "step/transform/autocast.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/builder.h"
#include "step/train_step.h"

namespace headroom::step {
namespace {

using model::DType;
using model::Graph;
using model::GraphBuilder;
using model::ParameterRole;
using model::RegionKind;
using model::RegionScope;
using model::Var;
using op::OpKind;

// One weight that two layers share.
Graph shared_weight(bool trainable) {
  GraphBuilder g;
  {
    const Var weight = g.parameter("shared.weight", {8, 8}, ParameterRole::linear);
    const Var ids = g.input("labels", {4}, DType::i64);
    Var x = g.parameter("start.weight", {4, 8}, ParameterRole::other);
    for (int i = 0; i < 2; ++i) {
      RegionScope layer(g, RegionKind::layer, "layers." + std::to_string(i), {&x});
      x = g.linear(x, weight);
      x = g.linear(x, weight);
      layer.leave({&x});
    }
    const Var loss = g.cross_entropy(x, ids);
    g.set_outputs(loss, x, {});
  }
  Graph graph = g.finish();
  graph.parameters[0].trainable = trainable;
  return graph;
}

int64_t count_of(const Graph& graph, OpKind kind) {
  return std::ranges::count(graph.operations, kind, &model::Operation::kind);
}

TEST(Autocast, ATrainableWeightIsCastOnceALayer) {
  // Four calls cast their inputs, the loss its own; the weight is cast at the first call of each
  // layer.
  EXPECT_EQ(count_of(apply_autocast(shared_weight(true), {}), OpKind::autocast), 4 + 2 + 1);
}

TEST(Autocast, AFrozenWeightIsCastAtEveryCall) {
  EXPECT_EQ(count_of(apply_autocast(shared_weight(false), {}), OpKind::autocast), 4 + 4 + 1);
}

TEST(Autocast, EveryCastIsDroppedOrCached) {
  const Graph graph = apply_autocast(shared_weight(true), {});
  std::vector<int> drops(graph.value_count);
  for (const model::Instruction& instruction : graph.instructions) {
    if (instruction.kind == model::InstructionKind::drop) ++drops[instruction.index];
  }
  for (const model::Operation& operation : graph.operations) {
    if (operation.kind != OpKind::autocast) continue;
    EXPECT_EQ(drops[operation.outputs[0]], 1);
  }
}

TEST(Autocast, HalfPrecisionOutputsAreHandedOnInFloat32) {
  AutocastOptions options;
  options.outputs_to_float32 = true;
  const Graph source = shared_weight(true);
  const Graph graph = apply_autocast(source, options);
  EXPECT_NE(graph.logits, source.logits);
  EXPECT_TRUE(trace_training(graph, {}));
}

// cross_entropy_loss (ATen/native/LossNLL.cpp) names the logits' own type to log_softmax, which
// autocast then leaves alone; the log-probabilities are what it widens, for nll_loss.
TEST(Autocast, TheLossWidensLogProbabilities) {
  TrainOptions options;
  options.steps = 1;
  GraphBuilder g;
  {
    const Var x = g.parameter("logits", {64, 1000}, ParameterRole::other);
    const Var ids = g.input("labels", {64}, DType::i64);
    g.set_outputs(g.cross_entropy(x, ids), {}, {});
  }
  const auto trace = trace_training(apply_autocast(g.finish(), {}), options);
  ASSERT_TRUE(trace);
  int64_t narrow = 0;
  int64_t wide = 0;
  for (const memory::BufferInfo& buffer : trace->memory.buffers) {
    narrow += buffer.requested_bytes == 2 * 64 * 1000 ? 1 : 0;
    wide += buffer.requested_bytes == 4 * 64 * 1000 ? 1 : 0;
  }
  // Logits, log-probabilities, and in backward the gradients of both and their way back; the wide
  // ones are the copy and its gradient. AdamW adds two states and two temporaries.
  EXPECT_EQ(wide, 2);
  EXPECT_GE(narrow, 4);
}

TEST(Autocast, ARecomputedLayerMakesItsOwnCasts) {
  TrainOptions options;
  options.weights = DType::f32;
  options.checkpointing = CheckpointPolicy::full;
  for (const CheckpointKind kind : {CheckpointKind::reentrant, CheckpointKind::non_reentrant}) {
    options.checkpoint_kind = kind;
    EXPECT_TRUE(trace_training(apply_autocast(shared_weight(true), {}), options));
  }
}

}  // namespace
}  // namespace headroom::step
