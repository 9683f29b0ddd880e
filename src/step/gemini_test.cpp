// What a rank holds under Gemini, and what it sends. That sizes of chunks are Colossal-AI's own is
// held in gemini_chunks_test.cpp.
#include "step/gemini.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "model/load.h"
#include "step/train_step.h"
#include "step/transform/colossal_tensor.h"

namespace headroom::step {
namespace {

using memory::Category;
using op::OpKind;

// 91 million parameters: more than one chunk holds.
model::Graph llama() {
  const auto config = text::parse_json(
      R"({"model_type": "llama", "vocab_size": 96, "hidden_size": 1024, "intermediate_size": 2816,
          "num_attention_heads": 16, "num_key_value_heads": 4, "max_position_embeddings": 128,
          "tie_word_embeddings": false, "num_hidden_layers": 8})",
      "test");
  model::BuildOptions build;
  build.batch = 1;
  build.sequence = 24;
  return model::build_graph({*config, "test"}, build).value();
}

StepTrace trace_of(const model::Graph& graph, const GeminiOptions& gemini) {
  TrainOptions options;
  options.weights = op::DType::f16;
  options.optimizer.implementation = OptimizerImplementation::fused;
  options.optimizer.counts_on_host = true;
  options.parallel = gemini;
  options.steps = 2;
  return trace_training(graph, options).value();
}

// Of a category, the most that is alive at once, and what is at the end.
struct Alive {
  int64_t most = 0;
  int64_t last = 0;
};
Alive alive(const StepTrace& trace, Category category) {
  Alive bytes;
  for (const memory::MemoryEvent& event : trace.memory.events) {
    const memory::BufferInfo& buffer = trace.memory.buffers[event.buffer];
    if (buffer.category != category) continue;
    const bool comes = event.kind == memory::EventKind::alloc;
    bytes.last += comes ? buffer.requested_bytes : -buffer.requested_bytes;
    bytes.most = std::max(bytes.most, bytes.last);
  }
  return bytes;
}

// Of the second step.
std::vector<OperatorCall> collectives(const StepTrace& trace, OpKind kind) {
  uint32_t from = 0;
  for (const PhaseMark& mark : trace.phases) {
    if (mark.iteration == 2 && from == 0) from = mark.first_call;
  }
  std::vector<OperatorCall> found;
  for (size_t i = from; i < trace.calls.size(); ++i) {
    if (trace.calls[i].kind == kind) found.push_back(trace.calls[i]);
  }
  return found;
}

int64_t written(const std::vector<OperatorCall>& calls) {
  return std::accumulate(calls.begin(), calls.end(), int64_t{0},
                         [](int64_t sum, const auto& call) { return sum + call.bytes_written; });
}

TEST(Gemini, EveryChunkIsGatheredOnceAStepAndReducedOnce) {
  const StepTrace trace = trace_of(llama(), {.ranks = 4});
  ASSERT_TRUE(memory::validate_trace(trace.memory));
  const auto gathers = collectives(trace, OpKind::all_gather);
  const auto reductions = collectives(trace, OpKind::reduce_scatter);
  ASSERT_EQ(gathers.size(), 2U);
  ASSERT_EQ(reductions.size(), 2U);
  const int64_t parameters = model::parameter_count(llama(), true);
  EXPECT_GE(written(gathers), 2 * parameters);
  EXPECT_EQ(written(gathers), 4 * written(reductions));
  for (const OperatorCall& call : gathers) {
    EXPECT_EQ(call.phase, Phase::forward);
    EXPECT_TRUE(call.follows);
  }
}

TEST(Gemini, ARankKeepsItsShareAndHasAllOnceForwardIsDone) {
  const StepTrace trace = trace_of(llama(), {.ranks = 4});
  const int64_t chunks = written(collectives(trace, OpKind::all_gather)) / 2;  // elements
  EXPECT_EQ(alive(trace, Category::gathered).most, 2 * chunks);
  EXPECT_EQ(alive(trace, Category::gathered).last, 0);
  // The masters' chunks, and two states of what is in the first rank's share of them.
  const int64_t states = alive(trace, Category::optimizer_state).last;
  EXPECT_GT(states, 12 * model::parameter_count(llama(), true) / 4 - (1 << 20));
  EXPECT_LE(states, 12 * chunks / 4);
  // Gradients lie where parameters did.
  EXPECT_EQ(alive(trace, Category::gradient).last, 2 * chunks / 4);
  EXPECT_LE(alive(trace, Category::gradient).most, 2 * chunks / 4 + 2 * 1024 * 2816);
}

TEST(Gemini, OneRankAloneKeepsItsChunksWhole) {
  const model::Graph part = apply_colossal_tensor(llama(), 2).value();
  const StepTrace trace = trace_of(part, {.ranks = 1, .tensor_ranks = 2});
  EXPECT_TRUE(collectives(trace, OpKind::reduce_scatter).empty());
  EXPECT_EQ(alive(trace, Category::gathered).most, 0);
  // Norms are all ranks'; what products take is this one's.
  int64_t among_all = 0;
  for (const OperatorCall& call : collectives(trace, OpKind::all_reduce)) {
    if (call.peers == Peers::data) among_all += call.bytes_read;
  }
  EXPECT_EQ(among_all, 2 * (2 * 8 + 1) * 1024);
}

TEST(Gemini, WhatTensorRanksDivideIsReducedAmongFewerThanTheRest) {
  const model::Graph part = apply_colossal_tensor(llama(), 2).value();
  const StepTrace trace = trace_of(part, {.ranks = 3, .tensor_ranks = 2});
  size_t among_all = 0;
  for (const OperatorCall& call : collectives(trace, OpKind::all_reduce)) {
    if (call.peers == Peers::tensor) continue;
    EXPECT_EQ(call.group.count, 6);
    ++among_all;
  }
  EXPECT_EQ(among_all, 1U);  // norms lie in one chunk, which stays whole
  const auto reductions = collectives(trace, OpKind::reduce_scatter);
  ASSERT_EQ(reductions.size(), 1U);
  EXPECT_EQ(reductions[0].group, RankGroup());
  EXPECT_EQ(reductions[0].bytes_read, 3 * reductions[0].bytes_written);
}

TEST(Gemini, ClippingTakesACopyInFloat32) {
  const StepTrace plain = trace_of(llama(), {.ranks = 4});
  const StepTrace clipped = trace_of(llama(), {.ranks = 4, .clips = true});
  EXPECT_GT(clipped.memory.events.size(), plain.memory.events.size());
}

}  // namespace
}  // namespace headroom::step
