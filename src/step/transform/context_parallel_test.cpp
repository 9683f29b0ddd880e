// A rank that has a part of each sequence: its attention, and what that takes.
#include "step/transform/context_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "step/tiny_llama.h"
#include "step/train_step.h"

namespace headroom::step {
namespace {

model::Graph llama(int64_t sequence, double attention_dropout = 0) {
  return tiny_llama({.features = 224,
                     .key_heads = 4,
                     .batch = 1,
                     .sequence = sequence,
                     .attention_dropout = attention_dropout});
}

StepTrace trace_of(const model::Graph& graph) {
  TrainOptions options;
  options.environment.attention = op::AttentionBackend::flash;
  options.steps = 1;
  return trace_training(graph, options).value();
}

double attention_flops(const StepTrace& trace) {
  double flops = 0;
  for (const OperatorCall& call : trace.calls) {
    if (op::group_of(call.kind) == op::OpGroup::attention) flops += call.flops;
  }
  return flops;
}

// Four ranks with 256 tokens each do together what one does with 1,024.
TEST(ContextParallel, SharesTheWorkOfAttention) {
  const double alone = attention_flops(trace_of(llama(1024)));
  const double shared = attention_flops(trace_of(apply_context_parallel(llama(256), 4).value()));
  EXPECT_NEAR(4 * shared / alone, 1, 0.01);
}

// Keys and values of all ranks are there for the length of one layer's attention.
TEST(ContextParallel, GathersKeysAndValues) {
  constexpr int64_t kAll = 4 * 2 * 256 * 64 * 2;  // ranks, keys and values, bytes
  const StepTrace trace = trace_of(apply_context_parallel(llama(256), 4).value());
  EXPECT_EQ(std::ranges::count(trace.memory.buffers, kAll, &memory::BufferInfo::requested_bytes),
            2 * 2);  // layers, each way
}

TEST(ContextParallel, SendsToItsNeighbours) {
  const StepTrace trace = trace_of(apply_context_parallel(llama(256), 4).value());
  const auto sends = std::ranges::count(trace.calls, op::OpKind::send_receive, &OperatorCall::kind);
  EXPECT_EQ(sends, 2 * 3 * 3);  // layers; forward, keys again, gradients; three neighbours' parts
}

TEST(ContextParallel, TakesCausalAttentionWithoutDropout) {
  EXPECT_TRUE(apply_context_parallel(llama(256), 2));
  EXPECT_FALSE(apply_context_parallel(llama(256, 0.1), 2));
  model::Graph none = llama(256);
  for (model::Operation& operation : none.operations) {
    if (operation.kind == op::OpKind::sdpa) operation.kind = op::OpKind::flash_attention;
  }
  EXPECT_FALSE(apply_context_parallel(none, 2));
}

}  // namespace
}  // namespace headroom::step
