#include "step/inference.h"

#include <gtest/gtest.h>

#include "model/load.h"
#include "step/train_step.h"

namespace headroom::step {
namespace {

constexpr const char* kConfig = R"({"model_type": "llama", "vocab_size": 1000, "hidden_size": 64,
    "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 8,
    "num_key_value_heads": 2})";

model::Graph graph_of(int64_t sequence, int64_t past, model::Attention attention) {
  const auto json = text::parse_json(kConfig, "test").value();
  model::BuildOptions options;
  options.batch = 2;
  options.sequence = sequence;
  options.past = past;
  options.use_cache = true;
  options.training = false;
  options.labels = false;
  options.attention = attention;
  return model::build_graph({json, "test"}, options).value();
}

int64_t live_at_end(const StepTrace& trace, memory::Category category) {
  int64_t bytes = 0;
  for (const memory::MemoryEvent& event : trace.memory.events) {
    const memory::BufferInfo& buffer = trace.memory.buffers[event.buffer];
    if (buffer.category != category) continue;
    bytes +=
        event.kind == memory::EventKind::alloc ? buffer.requested_bytes : -buffer.requested_bytes;
  }
  return bytes;
}

// layers * 2 * batch * kv heads * tokens * head size * 2 bytes
constexpr int64_t cache_bytes(int64_t tokens) { return 3 * 2 * 2 * 2 * tokens * 8 * 2; }

TEST(Inference, PrefillLeavesTheCacheAndNothingElse) {
  for (const auto attention : {model::Attention::eager, model::Attention::sdpa}) {
    const auto trace = trace_inference(graph_of(16, 0, attention), {});
    ASSERT_TRUE(trace) << trace.error().to_string();
    ASSERT_TRUE(memory::validate_trace(trace->memory));
    EXPECT_EQ(live_at_end(*trace, memory::Category::kv_cache), cache_bytes(16));
    EXPECT_EQ(live_at_end(*trace, memory::Category::temporary), 0);
    EXPECT_EQ(trace->saved_bytes, 0);
  }
}

TEST(Inference, DecodingGrowsTheCacheByOneToken) {
  const model::Graph graph = graph_of(1, 16, model::Attention::sdpa);
  EXPECT_EQ(kv_cache_bytes(graph, op::DType::bf16), cache_bytes(16));
  const auto trace = trace_inference(graph, {});
  ASSERT_TRUE(trace) << trace.error().to_string();
  EXPECT_EQ(live_at_end(*trace, memory::Category::kv_cache), cache_bytes(17));
}

// Decode attention reads the whole cache for every token: its FLOPs grow with the past.
TEST(Inference, AttentionWorkGrowsWithThePast) {
  const auto flops = [](int64_t past) {
    const auto trace = trace_inference(graph_of(1, past, model::Attention::sdpa), {});
    double sum = 0;
    for (const OperatorCall& call : trace->calls) {
      if (call.kind == op::OpKind::sdpa) sum += call.flops;
    }
    return sum;
  };
  EXPECT_GT(flops(1000), 50 * flops(10));
}

}  // namespace
}  // namespace headroom::step
