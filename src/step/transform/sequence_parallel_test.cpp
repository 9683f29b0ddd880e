// Tensor parallelism whose ranks divide sequences between its products, as torchtitan has it. Held
// against PyTorch's DTensor, block by block, in tests/python/test_tensor_parallel.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "step/tiny_llama.h"
#include "step/train_step.h"
#include "step/transform/float8.h"
#include "step/transform/head_in_chunks.h"
#include "step/transform/tensor_parallel.h"

namespace headroom::step {
namespace {

using op::OpGroup;
using op::OpKind;

constexpr int64_t kRanks = 2;
constexpr int64_t kLayers = 2;
constexpr int64_t kBatch = 2;
constexpr int64_t kTokens = 24;
constexpr int64_t kWhole = kBatch * kTokens * 64 * 2;  // bytes of a hidden state

model::Graph llama(int64_t sequence = kTokens, int64_t vocabulary = 96) {
  return tiny_llama(
      {.layers = kLayers, .vocabulary = vocabulary, .batch = kBatch, .sequence = sequence});
}

Result<model::Graph> divided(const model::Graph& graph, std::string_view model_type = "llama") {
  return apply_tensor_parallel(graph, {.ranks = kRanks,
                                       .model_type = model_type,
                                       .cuts_gradients = false,
                                       .is_sequence_parallel = true});
}

TrainOptions options_of(bool is_compiled) {
  TrainOptions options;
  options.environment.attention = op::AttentionBackend::flash;
  options.compiled.layers = is_compiled;
  options.steps = 1;
  return options;
}

StepTrace trace_of(const model::Graph& graph, bool is_compiled = false) {
  return trace_training(graph, options_of(is_compiled)).value();
}

double products_of(const StepTrace& trace) {
  double flops = 0;
  for (const OperatorCall& call : trace.calls) {
    if (op::group_of(call.kind) == OpGroup::gemm) flops += call.flops;
  }
  return flops;
}

int64_t calls_of(const StepTrace& trace, OpKind kind, int64_t bytes) {
  return std::ranges::count_if(trace.calls, [&](const OperatorCall& call) {
    return call.kind == kind && std::max(call.bytes_read, call.bytes_written) == bytes;
  });
}

TEST(SequenceParallel, RanksTogetherComputeWhatOneDoes) {
  const model::Graph whole = llama();
  EXPECT_DOUBLE_EQ(kRanks * products_of(trace_of(divided(whole).value())),
                   products_of(trace_of(whole)));
}

// Attention and the feed-forward gather what they take and scatter what they answer, the head
// gathers, the embedding scatters; backward the other way round.
TEST(SequenceParallel, GathersAndScattersAroundEachDividedPart) {
  for (const bool is_compiled : {false, true}) {
    const StepTrace trace = trace_of(divided(llama()).value(), is_compiled);
    EXPECT_EQ(calls_of(trace, OpKind::all_gather, kWhole), 2 * (2 * kLayers + 1)) << is_compiled;
    EXPECT_EQ(calls_of(trace, OpKind::reduce_scatter, kWhole), 2 * (2 * kLayers + 1))
        << is_compiled;
    for (const OperatorCall& call : trace.calls) {
      if (op::group_of(call.kind) == OpGroup::communication) {
        EXPECT_EQ(call.peers, Peers::tensor) << is_compiled;
      }
    }
  }
}

// What goes into float8 products is gathered in a byte an element, and so are the gradients of what
// they answer. The head and the embedding have no such products.
TEST(SequenceParallel, Float8IsGatheredSo) {
  const model::Graph whole =
      tiny_llama({.layers = kLayers, .features = 224, .batch = kBatch, .sequence = 32});
  const int64_t bytes = kBatch * 32 * 64 * 2;
  const StepTrace trace = trace_of(apply_float8(divided(whole).value()).value(), true);
  EXPECT_EQ(calls_of(trace, OpKind::all_gather, bytes / 2), 2 * 2 * kLayers);
  EXPECT_EQ(calls_of(trace, OpKind::all_gather, bytes), 2);
  EXPECT_EQ(calls_of(trace, OpKind::reduce_scatter, bytes), 2 * (2 * kLayers + 1));
  const Float8Gathers none{.weights = false, .sequences = false};
  const StepTrace wide = trace_of(apply_float8(divided(whole).value(), none).value(), true);
  EXPECT_EQ(calls_of(wide, OpKind::all_gather, bytes), 2 * 2 * kLayers + 2);
}

// A layer that runs again keeps its input, of which a rank has a part.
TEST(SequenceParallel, ACheckpointedLayerKeepsARanksPart) {
  const auto kept = [](int layers) {
    const model::Graph graph =
        tiny_llama({.layers = layers, .batch = kBatch, .sequence = kTokens, .checkpointing = true});
    TrainOptions options = options_of(false);
    options.checkpointing = CheckpointPolicy::full;
    return trace_training(divided(graph).value(), options).value().saved_bytes;
  };
  EXPECT_EQ(kept(4) - kept(3), kWhole / kRanks);
}

// A head whose loss goes chunk by chunk takes whole sequences and a part of the classes.
TEST(SequenceParallel, AHeadInChunksTakesPartsOfTheClasses) {
  const model::Graph graph =
      apply_head_in_chunks(llama(), {.chunks = 4, .is_of_parts = true}).value();
  const StepTrace whole = trace_of(apply_head_in_chunks(llama(), {.chunks = 4}).value());
  const StepTrace part = trace_of(divided(graph).value());
  EXPECT_DOUBLE_EQ(kRanks * products_of(part), products_of(whole));
  EXPECT_EQ(calls_of(part, OpKind::all_gather, kWhole), 2 * (2 * kLayers + 1));
  EXPECT_FALSE(apply_head_in_chunks(llama(), {.chunks = 5}));
}

TEST(SequenceParallel, RefusesWhatItCannotDivide) {
  const auto sequence = divided(llama(kTokens + 1));
  ASSERT_FALSE(sequence);
  EXPECT_NE(sequence.error().message.find("sequence"), std::string::npos);
  const auto vocabulary = divided(llama(kTokens, 97));
  ASSERT_FALSE(vocabulary);
  EXPECT_NE(vocabulary.error().message.find("vocabulary of 97"), std::string::npos);
  EXPECT_FALSE(divided(llama(), "gemma2"));
}

}  // namespace
}  // namespace headroom::step
