// Which layers are folded, and steps that end early. That folded steps are what running every layer
// writes is held over all families in src/fit/folded_steps_test.cpp.
#include "step/layer_fold.h"

#include <gtest/gtest.h>

#include "step/tiny_llama.h"
#include "step/trace_equality.h"
#include "step/train_step.h"

namespace headroom::step {
namespace {

model::Graph llama(int layers) { return tiny_llama({.layers = layers}); }

std::optional<LayerFold> fold_of(const model::Graph& graph) {
  return fold_layers(graph, std::vector<bool>(graph.regions.size()));
}

TEST(LayerFold, SkipsAllButFourUnits) {
  const model::Graph graph = llama(9);
  const auto fold = fold_of(graph);
  ASSERT_TRUE(fold);
  EXPECT_EQ(fold->units, 9);
  EXPECT_EQ(fold->skipped_units(), 5);
  EXPECT_EQ(fold->parameters.size(), 7);
  EXPECT_EQ(fold->skipped.passed_on.size(), 1);  // the hidden states
}

TEST(LayerFold, LeavesFewLayersAlone) { EXPECT_FALSE(fold_of(llama(4))); }

TEST(LayerFold, TakesNeighboursTogetherWhereTheyTakeTurns) {
  const model::Graph graph = llama(12);
  std::vector<bool> checkpointed(graph.regions.size());
  bool is_even = true;
  for (size_t i = 0; i < graph.regions.size(); ++i) {
    if (graph.regions[i].kind != model::RegionKind::layer) continue;
    checkpointed[i] = is_even;
    is_even = !is_even;
  }
  const auto fold = fold_layers(graph, checkpointed);
  ASSERT_TRUE(fold);
  EXPECT_EQ(fold->units, 6);
}

TEST(LayerFold, SeesALayerThatIsNotLikeTheOthers) {
  model::Graph graph = llama(9);
  for (model::Parameter& parameter : graph.parameters) {
    if (parameter.name == "model.layers.4.mlp.up_proj.weight") parameter.trainable = false;
  }
  EXPECT_FALSE(fold_of(graph));
}

TEST(LayerFold, SeesWhoeverElseUsesWhatALayerMakes) {
  model::Graph graph = llama(9);
  const auto fold = fold_of(graph);
  graph.operations.back().inputs.push_back(fold->skipped.passed_on[0].to);
  EXPECT_FALSE(fold_of(graph));
}

TEST(FoldedSteps, EndWhereStepsThatWereRunEnd) {
  const model::Graph graph = llama(9);
  TrainOptions options;
  options.environment.blas.main_bytes = 8 << 20;
  const auto whole = trace_training(graph, options);
  ASSERT_EQ(whole->unfolded_units, 5);
  for (const int64_t share : {50, 60, 70, 80, 90}) {
    options.live_bytes_of_interest = whole->peak_live_bytes * share / 100;
    options.fold_layers = true;
    const auto folded = trace_training(graph, options);
    options.fold_layers = false;
    const auto run = trace_training(graph, options);
    ASSERT_TRUE(run->cut_short && folded->cut_short);
    EXPECT_EQ(folded->peak_live_bytes, run->peak_live_bytes);
    // A run's own variables go after its end; those are the events that it has more.
    ASSERT_LE(folded->memory.events.size(), run->memory.events.size());
    ASSERT_EQ(folded->memory.buffers.size(), run->memory.buffers.size());
    for (size_t i = 0; i < folded->memory.events.size(); ++i) {
      ASSERT_EQ(folded->memory.events[i].buffer, run->memory.events[i].buffer) << i;
    }
  }
}

}  // namespace
}  // namespace headroom::step
