#include "step/inference.h"

#include <gtest/gtest.h>

#include "model/load.h"
#include "step/train_step.h"

namespace headroom::step {
namespace {

constexpr const char* kConfig = R"({"model_type": "llama", "vocab_size": 1000, "hidden_size": 64,
    "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 8,
    "num_key_value_heads": 2})";

model::Graph graph_of(int64_t sequence, int64_t past, model::Attention attention,
                      const char* config = kConfig) {
  const auto json = text::parse_json(config, "test").value();
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

// A layer of linear attention and one of full attention: 8 columns of query and key in two heads,
// 12 of value in four.
constexpr const char* kHybrid = R"({"model_type": "qwen3_5_text", "vocab_size": 100,
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_key_head_dim": 4, "linear_value_head_dim": 3,
    "linear_conv_kernel_dim": 4, "layer_types": ["linear_attention", "full_attention"]})";
constexpr const char* kLightning = R"({"model_type": "minimax", "vocab_size": 100,
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1,
    "block_size": 4, "layer_types": ["linear_attention", "full_attention"]})";
constexpr const char* kSparse = R"({"model_type": "glm_moe_dsa", "vocab_size": 100,
    "hidden_size": 16, "intermediate_size": 24, "moe_intermediate_size": 8,
    "num_hidden_layers": 2, "num_attention_heads": 4, "kv_lora_rank": 6, "q_lora_rank": 10,
    "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 2,
    "num_experts_per_tok": 1, "index_n_heads": 2, "index_head_dim": 12, "index_topk": 5})";

// batch 2, as graph_of(); 2 bytes an element where nothing is said.
constexpr int64_t full_layer_bytes(int64_t tokens) { return 2 * 2 * 2 * tokens * 8 * 2; }
// The last four inputs of 2 * 8 + 12 channels, and a float32 matrix of 4 x 3 for each of 4 heads.
constexpr int64_t kDeltaNetState = 2 * 28 * 4 * 2 + 2 * 4 * 4 * 3 * 4;
constexpr int64_t kLightningState = 2 * 4 * 8 * 8 * 2;
// Two layers: latents, the rotated key of all heads, the indexer's key.
constexpr int64_t latent_bytes(int64_t tokens) { return 2 * 2 * tokens * (6 + 4 + 12) * 2; }

void expect_cache(const char* config, int64_t (*bytes)(int64_t tokens)) {
  SCOPED_TRACE(config);
  for (const auto attention : {model::Attention::eager, model::Attention::sdpa}) {
    const auto prefill = trace_inference(graph_of(16, 0, attention, config), {});
    ASSERT_TRUE(prefill) << prefill.error().to_string();
    ASSERT_TRUE(memory::validate_trace(prefill->memory));
    EXPECT_EQ(live_at_end(*prefill, memory::Category::kv_cache), bytes(16));
    EXPECT_EQ(live_at_end(*prefill, memory::Category::temporary), 0);
    for (const int64_t fresh : {1, 3}) {
      const model::Graph graph = graph_of(fresh, 16, attention, config);
      EXPECT_EQ(kv_cache_bytes(graph, op::DType::bf16), bytes(16));
      const auto decode = trace_inference(graph, {});
      ASSERT_TRUE(decode) << decode.error().to_string();
      EXPECT_EQ(live_at_end(*decode, memory::Category::kv_cache), bytes(16 + fresh));
      EXPECT_EQ(live_at_end(*decode, memory::Category::temporary), 0);
    }
  }
}

TEST(Inference, LinearAttentionKeepsAStateOfOneSize) {
  expect_cache(kHybrid, [](int64_t tokens) { return full_layer_bytes(tokens) + kDeltaNetState; });
  expect_cache(kLightning,
               [](int64_t tokens) { return full_layer_bytes(tokens) + kLightningState; });
}

TEST(Inference, LatentsAreCachedAsTheyAre) { expect_cache(kSparse, latent_bytes); }

}  // namespace
}  // namespace headroom::step
