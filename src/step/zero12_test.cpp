// What must hold of ZeRO's first rank where no CPU run can show it: what its construction leaves in
// PyTorch's cache. That its blocks are DeepSpeed's is held in tests/python/test_parallel.py.
#include <gtest/gtest.h>

#include "memory/replay.h"
#include "model/load.h"
#include "step/train_step.h"

namespace headroom::step {
namespace {

model::Graph llama() {
  const auto config = text::parse_json(
      R"({"model_type": "llama", "vocab_size": 96, "hidden_size": 1024, "intermediate_size": 2816,
          "num_attention_heads": 16, "num_key_value_heads": 4, "max_position_embeddings": 128,
          "tie_word_embeddings": false, "num_hidden_layers": 4})",
      "test");
  model::BuildOptions build;
  build.batch = 1;
  build.sequence = 24;
  return model::build_graph({*config, "test"}, build).value();
}

StepTrace trace_of(const ZeroOptions& zero) {
  TrainOptions options;
  options.parallel = zero;
  return trace_training(llama(), options).value();
}

int64_t peak_reserved(const memory::MemoryTrace& trace) {
  memory::DeviceMemory device;
  return memory::replay(trace, {}, device, {}).peak_reserved.bytes;
}

TEST(Zero, TheCacheIsEmptiedBeforeEachGroup) {
  ZeroOptions zero;
  zero.ranks = 8;
  zero.reduce_bucket_elements = 1 << 20;
  StepTrace trace = trace_of(zero);
  ASSERT_TRUE(memory::validate_trace(trace.memory));
  EXPECT_EQ(trace.memory.cache_emptied.size(), 2U);  // weights, and what does not decay
  const int64_t reserved = peak_reserved(trace.memory);
  trace.memory.cache_emptied.clear();
  EXPECT_LT(reserved, peak_reserved(trace.memory));
  // One group: nothing empties the cache of the parameters' own blocks.
  zero.decay_groups = false;
  EXPECT_EQ(trace_of(zero).memory.cache_emptied.size(), 1U);
}

TEST(Zero, WithoutRoomForBothTheParametersGoToTheHostFirst) {
  ZeroOptions zero;
  zero.ranks = 8;
  zero.reduce_bucket_elements = 1 << 20;
  const StepTrace beside = trace_of(zero);
  const int64_t weights = 2 * model::parameter_count(llama(), false);
  zero.device_bytes = 2 * weights - (1 << 20);
  const StepTrace apart = trace_of(zero);
  ASSERT_TRUE(memory::validate_trace(apart.memory));
  EXPECT_EQ(apart.memory.cache_emptied.size(), 3U);  // the few that do not decay fit
  const auto most_in_construction = [](const StepTrace& trace) {
    int64_t now = 0, most = 0;
    for (size_t i = 0; i < trace.memory.cache_emptied.back() + 8; ++i) {
      const memory::MemoryEvent& event = trace.memory.events[i];
      const int64_t bytes = trace.memory.buffers[event.buffer].requested_bytes;
      now += event.kind == memory::EventKind::alloc ? bytes : -bytes;
      most = std::max(most, now);
    }
    return most;
  };
  EXPECT_GE(most_in_construction(beside), 2 * weights - (1 << 20));
  EXPECT_LT(most_in_construction(apart), weights + weights / 2);
}

}  // namespace
}  // namespace headroom::step
