// The three losses that stand in the place of a model's own: what they keep of the step and what
// not.
#include <gtest/gtest.h>

#include <algorithm>

#include "model/load.h"
#include "step/train_step.h"
#include "step/transform/chunked_loss.h"
#include "step/transform/fused_linear_loss.h"
#include "step/transform/fused_loss.h"

namespace headroom::step {
namespace {

using model::Graph;
using op::OpGroup;

constexpr int64_t kBatch = 2;
constexpr int64_t kSequence = 64;
constexpr int64_t kClasses = 4096;
constexpr int64_t kTokens = kBatch * kSequence;

Graph tiny(const std::string& model_type, const std::string& more = "") {
  const auto config = text::parse_json(R"({"model_type": ")" + model_type +
                                           R"(", "vocab_size": 4096, "hidden_size": 64,
          "intermediate_size": 112, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "max_position_embeddings": 128)" +
                                           more + "}",
                                       "test");
  model::BuildOptions build;
  build.batch = kBatch;
  build.sequence = kSequence;
  return model::build_graph({*config, "test"}, build).value();
}

StepTrace trace_of(const Graph& graph) {
  TrainOptions options;
  options.steps = 1;
  auto trace = trace_training(graph, options);
  EXPECT_TRUE(trace) << trace.error().to_string();
  EXPECT_TRUE(memory::validate_trace(trace->memory));
  return std::move(*trace);
}

double product_flops(const StepTrace& trace) {
  double flops = 0;
  for (const OperatorCall& call : trace.calls) {
    if (op::group_of(call.kind) == OpGroup::gemm) flops += call.flops;
  }
  return flops;
}

bool takes(const StepTrace& trace, int64_t bytes) {
  return std::ranges::count(trace.memory.buffers, bytes, &memory::BufferInfo::requested_bytes) > 0;
}

TEST(FusedLinearLoss, NeverHasAllTheLogits) {
  const Graph plain = tiny("llama");
  const auto fused = apply_fused_linear_loss(plain);
  ASSERT_TRUE(fused) << fused.error().to_string();
  EXPECT_EQ(fused->logits, model::kNoValue);
  EXPECT_EQ(fused->parameters.size(), plain.parameters.size());
  const StepTrace before = trace_of(plain);
  const StepTrace after = trace_of(*fused);
  EXPECT_TRUE(takes(before, kTokens * kClasses * 2));
  EXPECT_FALSE(takes(after, kTokens * kClasses * 2));
  EXPECT_FALSE(takes(after, kTokens * kClasses * 4));
  // 4096 classes are 64 times the width, so 128 tokens go two by two.
  EXPECT_EQ(op::liger_chunk_rows(kTokens, 64, kClasses), 2);
  EXPECT_TRUE(takes(after, 2 * kClasses * 2));
  EXPECT_LT(after.peak_live_bytes, before.peak_live_bytes);
}

// The same three products, cut in pieces: logits, and the gradients of hidden states and weight.
TEST(FusedLinearLoss, DoesTheSameProducts) {
  const Graph plain = tiny("llama");
  EXPECT_DOUBLE_EQ(product_flops(trace_of(*apply_fused_linear_loss(plain))),
                   product_flops(trace_of(plain)));
}

TEST(FusedLinearLoss, AFrozenHeadHasNoGradient) {
  Graph graph = tiny("llama");
  for (model::Parameter& parameter : graph.parameters) {
    parameter.trainable = parameter.role != model::ParameterRole::lm_head &&
                          parameter.role != model::ParameterRole::embedding;
  }
  const StepTrace trace = trace_of(*apply_fused_linear_loss(graph));
  const int64_t weight_bytes = kClasses * 64 * 2;
  const auto weights =
      std::ranges::count(trace.memory.buffers, weight_bytes, &memory::BufferInfo::requested_bytes);
  EXPECT_EQ(weights, 2);  // the embedding and the head themselves
}

TEST(FusedLinearLoss, TheGradientMayGrowInFloat32) {
  FusedLinearLossOptions options;
  options.loss.float32_accumulation = true;
  const StepTrace trace = trace_of(*apply_fused_linear_loss(tiny("llama"), options));
  EXPECT_TRUE(takes(trace, kClasses * 64 * 4));
}

TEST(FusedLinearLoss, CapsWithinTheKernelAndRefusesOtherChanges) {
  EXPECT_TRUE(apply_fused_linear_loss(tiny("gemma2", R"(, "head_dim": 16)")));
  const auto refused = apply_fused_linear_loss(tiny("granite", R"(, "logits_scaling": 8.0)"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::usage);
}

TEST(FusedLoss, TakesNoGradientOfItsOwn) {
  const StepTrace plain = trace_of(tiny("llama"));
  const int64_t wide_logits = kTokens * kClasses * 4;
  for (const auto kind : {FusedLoss::liger, FusedLoss::fast}) {
    const StepTrace fused = trace_of(*apply_fused_loss(tiny("llama"), kind));
    const auto count = [&](const StepTrace& trace) {
      return std::ranges::count(trace.memory.buffers, wide_logits,
                                &memory::BufferInfo::requested_bytes);
    };
    // Of the float32 copy, its log-probabilities and two gradients, the copy is left.
    EXPECT_EQ(count(plain), 4);
    EXPECT_EQ(count(fused), 1);
    EXPECT_DOUBLE_EQ(product_flops(fused), product_flops(plain));
  }
}

TEST(FusedLoss, TheCausalOneShiftsACopy) {
  const StepTrace trace = trace_of(*apply_fused_loss(tiny("llama"), FusedLoss::fast_causal));
  EXPECT_TRUE(takes(trace, kBatch * (kSequence - 1) * kClasses * 4));
}

TEST(ChunkedLoss, WidensAPieceAtATime) {
  const StepTrace plain = trace_of(tiny("llama"));
  const StepTrace chunked = trace_of(*apply_chunked_loss(tiny("llama")));
  EXPECT_FALSE(takes(chunked, kTokens * kClasses * 4));
  EXPECT_TRUE(takes(chunked, kTokens / kLossChunks * kClasses * 4));
  EXPECT_DOUBLE_EQ(product_flops(chunked), product_flops(plain));
  EXPECT_LT(chunked.peak_live_bytes, plain.peak_live_bytes);
}

TEST(ChunkedLoss, MayHaveFewerPiecesThanAskedFor) {
  const auto pieces = [](int64_t asked) {
    const auto graph = apply_chunked_loss(tiny("llama"), asked);
    return graph ? std::ranges::count(graph->operations, op::OpKind::cross_entropy,
                                      &model::Operation::kind)
                 : -1;
  };
  EXPECT_EQ(pieces(8), 8);
  EXPECT_EQ(pieces(48), 32);  // of two tokens each
  EXPECT_EQ(pieces(1000), 64);
  EXPECT_TRUE(apply_chunked_loss(tiny("gemma2", R"(, "head_dim": 16)"), 3));
  EXPECT_FALSE(apply_chunked_loss(tiny("llama"), 0));
}

// A graph that says nothing of a head or a loss, as a traced one may.
TEST(FusedLosses, RefuseAGraphWithoutAHead) {
  Graph graph = tiny("llama");
  for (model::Region& region : graph.regions) region.kind = model::RegionKind::other;
  EXPECT_FALSE(apply_fused_linear_loss(graph));
  EXPECT_FALSE(apply_fused_loss(graph, FusedLoss::liger));
  EXPECT_FALSE(apply_chunked_loss(graph));
}

}  // namespace
}  // namespace headroom::step
