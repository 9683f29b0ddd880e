// What must hold of ZeRO with parts of it in the host's memory: what a rank needs there, written
// down from DeepSpeed's own figures for each parameter, and what is left on the device. That its
// blocks are DeepSpeed's is held in tests/python/test_parallel.py.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <map>

#include "memory/replay.h"
#include "model/load.h"
#include "step/train_step.h"

namespace headroom::step {
namespace {

using memory::Category;

model::Graph llama() {
  const auto config = text::parse_json(
      R"({"model_type": "llama", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 160,
          "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
          "tie_word_embeddings": false, "num_hidden_layers": 2})",
      "test");
  model::BuildOptions build;
  build.batch = 1;
  build.sequence = 24;
  return model::build_graph({*config, "test"}, build).value();
}

StepTrace trace_of(const ZeroOptions& zero, int64_t accumulation = 1) {
  TrainOptions options;
  options.parallel = zero;
  options.accumulation = accumulation;
  options.optimizer.states_on_cpu = zero.offload_optimizer;
  return trace_training(llama(), options).value();
}

ZeroOptions zero_of(int stage, int64_t ranks) {
  ZeroOptions zero;
  zero.stage = stage;
  zero.ranks = ranks;
  zero.reduce_bucket_elements = 1 << 14;
  zero.decay_groups = false;
  zero.overlap_comm = stage == 3;
  return zero;
}

// By category, what is there in the end.
std::map<Category, int64_t> left_of(const StepTrace& trace) {
  std::map<Category, int64_t> left;
  for (const memory::MemoryEvent& event : trace.memory.events) {
    const memory::BufferInfo& buffer = trace.memory.buffers[event.buffer];
    const bool is_alloc = event.kind == memory::EventKind::alloc;
    left[buffer.category] += is_alloc ? buffer.requested_bytes : -buffer.requested_bytes;
  }
  return left;
}

int64_t power_of_two(int64_t bytes) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes)));
}

// 18 bytes a trained parameter of the rank's: master, gradient, two states, and 2 in half
// precision; in stages 1 and 2 also a block as large as the largest gradient.
TEST(ZeroOffload, TheHostHoldsEighteenBytesForEachParameterOfARank) {
  const model::Graph graph = llama();
  const int64_t parameters = model::parameter_count(graph, true);
  int64_t largest = 0;
  for (const model::Parameter& parameter : graph.parameters) {
    largest = std::max(largest, op::product(parameter.shape));
  }
  for (const int stage : {1, 2, 3}) {
    for (const int64_t ranks : {1, 2, 4}) {
      ZeroOptions zero = zero_of(stage, ranks);
      zero.offload_optimizer = true;
      const HostMemory host = trace_of(zero).host;
      const int64_t share = parameters / ranks;  // which all of them divide evenly
      const int64_t half = 2 * (stage == 3 ? 0 : largest);
      EXPECT_EQ(host.requested_bytes, 18 * share + half) << stage << " " << ranks;
      const int64_t pinned_masters = stage == 3 ? 4 * share : power_of_two(4 * share);
      EXPECT_EQ(host.taken_bytes, pinned_masters + power_of_two(4 * share) + 8 * share +
                                      power_of_two(2 * share) + (half > 0 ? power_of_two(half) : 0))
          << stage << " " << ranks;
    }
  }
}

TEST(ZeroOffload, NeitherMastersNorStatesNorGradientsAreOnTheDevice) {
  for (const int stage : {1, 2, 3}) {
    ZeroOptions zero = zero_of(stage, 2);
    const auto whole = left_of(trace_of(zero));
    zero.offload_optimizer = true;
    auto left = left_of(trace_of(zero));
    EXPECT_GT(whole.at(Category::optimizer_state), 0);
    EXPECT_EQ(left[Category::optimizer_state], 0) << stage;
    EXPECT_EQ(left[Category::gradient], 0) << stage;
    EXPECT_EQ(left[Category::parameter], whole.at(Category::parameter)) << stage;
  }
}

// Shares of what is trained are the host's; each gather makes what it made, and the copies.
TEST(ZeroOffload, ParametersOnTheHostAreGatheredThroughCopies) {
  ZeroOptions zero = zero_of(3, 2);
  zero.persistence_elements = 0;
  const StepTrace device = trace_of(zero);
  zero.offload_parameters = true;
  const StepTrace host = trace_of(zero);
  ASSERT_TRUE(memory::validate_trace(host.memory));
  const int64_t share = model::parameter_count(llama(), true) / 2;
  EXPECT_EQ(host.host.requested_bytes, 2 * share);
  EXPECT_EQ(left_of(device)[Category::parameter] - left_of(host)[Category::parameter], 2 * share);
  const auto gathered = [](const StepTrace& trace) {
    std::vector<int64_t> bytes;
    for (const memory::MemoryEvent& event : trace.memory.events) {
      const memory::BufferInfo& buffer = trace.memory.buffers[event.buffer];
      const bool is_alloc = event.kind == memory::EventKind::alloc;
      if (is_alloc && buffer.category == Category::gathered)
        bytes.push_back(buffer.requested_bytes);
    }
    return bytes;
  };
  EXPECT_EQ(gathered(host), gathered(device));
  EXPECT_GT(host.memory.events.size(), device.memory.events.size());
}

// One rank alone: its parameters are views of its shares, and of shares on the host copies.
TEST(ZeroOffload, OneRankGathersNothing) {
  ZeroOptions zero = zero_of(3, 1);
  zero.persistence_elements = 0;
  zero.reuse_elements = 0;
  const StepTrace alone = trace_of(zero);
  for (const memory::BufferInfo& buffer : alone.memory.buffers) {
    EXPECT_NE(buffer.category, Category::gathered);
  }
  for (const OperatorCall& call : alone.calls) EXPECT_EQ(call.peers, Peers::none);
  zero.offload_parameters = true;
  const StepTrace host = trace_of(zero);
  EXPECT_EQ(left_of(host)[Category::gathered], 0);
  EXPECT_LT(host.peak_live_bytes, alone.peak_live_bytes);
}

// Adding up over micro-batches takes a block of the host's for each of the rank's gradients.
TEST(ZeroOffload, MicroBatchesAreAddedUpOnTheHost) {
  ZeroOptions zero = zero_of(2, 1);
  zero.offload_optimizer = true;
  const int64_t parameters = model::parameter_count(llama(), true);
  EXPECT_EQ(trace_of(zero, 3).host.requested_bytes - trace_of(zero).host.requested_bytes,
            2 * parameters);
}

}  // namespace
}  // namespace headroom::step
