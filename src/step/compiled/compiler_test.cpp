// What a compiled layer keeps, allocates and launches. Held against PyTorch itself, over more
// models and policies, in tests/python/test_compile.py.
#include "step/compiled/compiler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "step/compiled/partition.h"
#include "step/gradient_bytes.h"
#include "step/tiny_llama.h"
#include "step/train_step.h"

namespace headroom::step {
namespace {

constexpr int64_t kTokens = 2 * 128;
constexpr int64_t kHidden = kTokens * 256 * 2;  // bytes of the layer's input
constexpr int64_t kKeys = kTokens * 64 * 2;
constexpr int64_t kFeatures = kTokens * 896 * 2;
constexpr int64_t kRows = kTokens * 4;         // a float32 a token
constexpr int64_t kLogSums = kTokens * 8 * 4;  // a float32 a token and head
constexpr int64_t kSeeds = 16 + 8;             // of a flash kernel's random numbers

model::Graph llama(int layers, bool compiled = false) {
  return tiny_llama({.layers = layers,
                     .hidden = 256,
                     .features = 896,
                     .heads = 8,
                     .vocabulary = 1000,
                     .sequence = 128,
                     .compiled = compiled});
}

TrainOptions compiled_options() {
  TrainOptions options;
  options.environment.attention = op::AttentionBackend::flash;
  options.environment.kernel_scratch = false;
  options.compiled.layers = true;
  options.steps = 1;
  return options;
}

// Bytes that one more layer leaves for backward.
int64_t kept_by_a_layer(const TrainOptions& options) {
  const auto held = [&](int layers) {
    const model::Graph graph = llama(layers, options.compiled.model);
    const StepTrace trace = trace_training(graph, options).value();
    int64_t live = 0;
    for (const PhaseMark& mark : trace.phases) {
      if (mark.phase != Phase::backward) continue;
      for (size_t i = 0; i < mark.first_event; ++i) {
        const memory::MemoryEvent& event = trace.memory.events[i];
        const int64_t bytes = trace.memory.buffers[event.buffer].requested_bytes;
        live += event.kind == memory::EventKind::alloc ? bytes : -bytes;
      }
      return live - 2 * model::parameter_count(llama(layers), true);
    }
    return live;
  };
  return held(3) - held(2);
}

// Norms' inputs are read again with their statistics; what a product reads in backward is kept.
TEST(CompiledLayer, KeepsWhatMinCutChooses) {
  EXPECT_EQ(kept_by_a_layer(compiled_options()),
            kHidden + 2 * kRows            // the input, both norms' statistics
                + 5 * kHidden + 2 * kKeys  // normalized twice, queries, attention, its projection
                + kLogSums + kSeeds + 3 * kFeatures);
}

TEST(CompiledLayer, KeepsItsInputAloneWithinACheckpoint) {
  TrainOptions options = compiled_options();
  options.checkpointing = CheckpointPolicy::full;
  EXPECT_EQ(kept_by_a_layer(options), kHidden);
}

// The last product's result is chosen too, but nothing in backward reads it.
TEST(CompiledLayer, KeepsOfASelectiveCheckpointWhatBackwardReads) {
  TrainOptions options = compiled_options();
  options.checkpointing = CheckpointPolicy::full;
  options.checkpoint_keeps = {.attention = true, .products = true, .but_every = 2};
  const int64_t compiled = kept_by_a_layer(options);
  EXPECT_EQ(compiled, kHidden + kHidden + kKeys + kHidden + kLogSums + kSeeds + kFeatures);
  options.compiled.layers = false;
  EXPECT_EQ(kept_by_a_layer(options), compiled + kHidden);
}

TEST(CompiledLayer, LaunchesLibrariesKernelsAsOftenAsEagerDoes) {
  const auto products = [](const StepTrace& trace) {
    return std::ranges::count_if(trace.calls, [](const OperatorCall& call) {
      return op::group_of(call.kind) == op::OpGroup::gemm;
    });
  };
  TrainOptions options = compiled_options();
  const StepTrace compiled = trace_training(llama(2), options).value();
  options.compiled.layers = false;
  const StepTrace eager = trace_training(llama(2), options).value();
  EXPECT_EQ(products(compiled), products(eager));
  EXPECT_LT(compiled.calls.size(), eager.calls.size());
}

// A gate that multiplies a tensor by itself: both gradients go to one node. Of every family the
// gradients are compared in src/fit/compiled_steps_test.cpp.
TEST(CompiledLayer, BothGradientsOfASquareArrive) {
  model::Graph graph = llama(2);
  for (model::Operation& operation : graph.operations) {
    const bool is_gate = operation.kind == op::OpKind::mul && operation.inputs.size() == 2 &&
                         graph.modules[operation.module].ends_with("mlp");
    if (is_gate) operation.inputs[0] = operation.inputs[1];
  }
  TrainOptions options = compiled_options();
  const StepTrace compiled = trace_training(graph, options).value();
  options.compiled.layers = false;
  const StepTrace eager = trace_training(graph, options).value();
  EXPECT_LT(gradient_bytes(eager), gradient_bytes(trace_training(llama(2), options).value()));
  EXPECT_EQ(gradient_bytes(compiled), gradient_bytes(eager));
}

// Of the loss alone nothing as large as the logits in float32 is ever in memory.
TEST(CompiledLoss, HasNoLogitsInFloat32) {
  constexpr int64_t kWideLogits = kTokens * 1000 * 4;
  const auto wide_blocks = [kWideLogits](const TrainOptions& options) {
    const StepTrace trace = trace_training(llama(2), options).value();
    return std::ranges::count(trace.memory.buffers, kWideLogits,
                              &memory::BufferInfo::requested_bytes);
  };
  TrainOptions options = compiled_options();
  options.compiled = {.loss = true};
  EXPECT_EQ(wide_blocks(options), 0);
  options.compiled = {};
  EXPECT_GE(wide_blocks(options), 3);
}

TrainOptions whole_options() {
  TrainOptions options = compiled_options();
  options.environment.attention = op::AttentionBackend::efficient;  // which takes masks
  options.compiled = {.model = true};
  return options;
}

// As of a layer by itself, but that keys and values are repeated for a kernel that takes a mask.
TEST(CompiledModel, KeepsOfALayerWhatMinCutChooses) {
  EXPECT_EQ(kept_by_a_layer(whole_options()),
            kHidden + 2 * kRows + 5 * kHidden + 2 * kHidden + kLogSums + 2 * 8 + 3 * kFeatures);
}

TEST(CompiledModel, KeepsWhatOneCheckpointHandsToTheNext) {
  TrainOptions options = whole_options();
  options.checkpointing = CheckpointPolicy::full;
  EXPECT_EQ(kept_by_a_layer(options), kHidden);
}

// The mask that each layer reads is made once, in the model's type, and all gradients come at once.
TEST(CompiledModel, MakesOneMaskAndItsGradientsInOnePass) {
  const StepTrace trace = trace_training(llama(6, true), whole_options()).value();
  EXPECT_EQ(std::ranges::count(trace.memory.buffers, int64_t{2} * 128 * 128 * 2,
                               &memory::BufferInfo::requested_bytes),
            1);
  const StepTrace layers = trace_training(llama(6), compiled_options()).value();
  EXPECT_EQ(gradient_bytes(trace), gradient_bytes(layers));
}

// Gradients of a second micro-batch are all there before the first is added to.
TEST(CompiledModel, HoldsTheGradientsOfTwoMicroBatches) {
  const auto peak_of_passes = [](TrainOptions options) {
    options.accumulation = 2;
    options.checkpointing = CheckpointPolicy::full;
    const StepTrace trace = trace_training(llama(6, options.compiled.model), options).value();
    int64_t live = 0;
    int64_t peak = 0;
    const auto end = std::ranges::find(trace.phases, Phase::clip, &PhaseMark::phase)->first_event;
    for (size_t i = 0; i < end; ++i) {
      const memory::MemoryEvent& event = trace.memory.events[i];
      const int64_t bytes = trace.memory.buffers[event.buffer].requested_bytes;
      live += event.kind == memory::EventKind::alloc ? bytes : -bytes;
      peak = std::max(peak, live);
    }
    return peak;
  };
  const int64_t gradients = 2 * model::parameter_count(llama(6), true);
  EXPECT_GT(peak_of_passes(whole_options()), peak_of_passes(compiled_options()) + gradients / 2);
}

TEST(CompiledLayer, RefusesToWriteOverWhatItWasGiven) {
  model::Graph graph = llama(1);
  const model::Region* layer = nullptr;
  for (const model::Region& region : graph.regions) {
    if (region.kind == model::RegionKind::layer) layer = &region;
  }
  ASSERT_NE(layer, nullptr);
  for (uint32_t i = layer->begin; i < layer->end; ++i) {
    if (graph.instructions[i].kind != model::InstructionKind::operation) continue;
    model::Operation& operation = graph.operations[graph.instructions[i].index];
    if (operation.kind != op::OpKind::add || operation.inputs.size() != 2) continue;
    const auto& given = layer->inputs;
    if (std::ranges::find(given, operation.inputs[0]) == given.end()) continue;
    operation.kind = op::OpKind::add_assign;
    const auto refused = trace_training(graph, compiled_options());
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().to_string().find("torch.compile"), std::string::npos);
    return;
  }
  FAIL() << "the layer adds nothing to what it was given";
}

}  // namespace
}  // namespace headroom::step
