// Patched modules: which ones are found, and that the step still runs.
#include <gtest/gtest.h>

#include <algorithm>

#include "model/builder.h"
#include "model/load.h"
#include "step/train_step.h"
#include "step/transform/fast_kernels.h"
#include "step/transform/liger.h"
#include "step/transform/module_patterns.h"

namespace headroom::step {
namespace {

using model::Graph;
using op::OpKind;

constexpr int64_t kLayers = 3;

Graph tiny(const std::string& model_type, model::Attention attention = model::Attention::sdpa) {
  const auto config = text::parse_json(
      R"({"model_type": ")" + model_type + R"(", "vocab_size": 512, "hidden_size": 64,
          "intermediate_size": 112, "num_hidden_layers": 3, "num_attention_heads": 4,
          "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128})",
      "test");
  model::BuildOptions build;
  build.batch = 2;
  build.sequence = 32;
  build.attention = attention;
  return model::build_graph({*config, "test"}, build).value();
}

int64_t count(const Graph& graph, OpKind kind) {
  return std::ranges::count(graph.operations, kind, &model::Operation::kind);
}

struct Patched {
  const char* model_type;
  int64_t norms;
  int64_t rotaries;
  int64_t gates;
};

TEST(Liger, PatchesEveryModuleThatItsTableNames) {
  const Patched families[] = {
      {"llama", 2 * kLayers + 1, kLayers, kLayers},
      {"mistral", 2 * kLayers + 1, kLayers, kLayers},
      {"qwen3", 4 * kLayers + 1, kLayers, kLayers},
      {"gemma", 2 * kLayers + 1, kLayers, kLayers},
      {"gemma2", 4 * kLayers + 1, kLayers, kLayers},
      {"gemma3_text", 6 * kLayers + 1, kLayers, kLayers},
      {"granite", 2 * kLayers + 1, kLayers, kLayers},
      {"phi3", 2 * kLayers + 1, kLayers, kLayers},
      {"glm4", 4 * kLayers + 1, 0, kLayers},
  };
  for (const Patched& family : families) {
    const auto graph = apply_liger(tiny(family.model_type), family.model_type);
    ASSERT_TRUE(graph) << family.model_type;
    EXPECT_EQ(count(*graph, OpKind::liger_rms_norm), family.norms) << family.model_type;
    EXPECT_EQ(count(*graph, OpKind::liger_rotary), family.rotaries) << family.model_type;
    EXPECT_EQ(count(*graph, OpKind::liger_gated), family.gates) << family.model_type;
    EXPECT_EQ(count(*graph, OpKind::rsqrt), 0) << family.model_type;
    EXPECT_EQ(count(*graph, OpKind::silu), 0) << family.model_type;
  }
}

TEST(Liger, RefusesWhatItDoesNotPatchByName) {
  const auto refused = apply_liger(tiny("llama"), "gpt2");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("gpt2"), std::string::npos);
  EXPECT_EQ(liger_loss("granite"), LigerLoss::cross_entropy);
  EXPECT_EQ(liger_loss("llama"), LigerLoss::fused_linear);
}

TEST(FastKernels, PatchNormsAndRotaryEmbeddings) {
  const auto graph = apply_fast_kernels(tiny("mistral"), "mistral");
  ASSERT_TRUE(graph);
  EXPECT_EQ(count(*graph, OpKind::fast_rms_norm), 2 * kLayers + 1);
  EXPECT_EQ(count(*graph, OpKind::fast_rotary), 2 * kLayers);
  EXPECT_EQ(count(*graph, OpKind::silu), kLayers);
  EXPECT_FALSE(apply_fast_kernels(tiny("qwen2"), "qwen2"));
  EXPECT_EQ(fast_loss("mistral", {4, 48}), FusedLoss::fast_causal);
  EXPECT_EQ(fast_loss("mistral", {4, 47}), FusedLoss::fast);  // its own loss until 4.48
  EXPECT_EQ(fast_loss("mixtral", {4, 46}), FusedLoss::fast_causal);
  EXPECT_EQ(fast_loss("mixtral", {4, 45}), FusedLoss::fast);
  EXPECT_EQ(fast_loss("gpt_bigcode", {4, 48}), FusedLoss::fast);
}

TEST(PatchedModels, RunUnderBothKindsOfCheckpointsAndTakeLess) {
  for (const auto kind : {CheckpointKind::reentrant, CheckpointKind::non_reentrant}) {
    for (const auto policy : {CheckpointPolicy::none, CheckpointPolicy::full}) {
      TrainOptions options;
      options.checkpointing = policy;
      options.checkpoint_kind = kind;
      const auto plain = trace_training(tiny("llama"), options);
      for (const auto& graph :
           {apply_liger(tiny("llama"), "llama"), apply_fast_kernels(tiny("llama"), "llama")}) {
        const auto patched = trace_training(*graph, options);
        ASSERT_TRUE(patched) << patched.error().to_string();
        EXPECT_TRUE(memory::validate_trace(patched->memory));
        EXPECT_LT(patched->saved_bytes, plain->saved_bytes + 1);
        EXPECT_LE(patched->peak_live_bytes, plain->peak_live_bytes);
      }
    }
  }
}

// The same operators in the same order, but the power is not of what was widened.
TEST(ModulePatterns, WantTheDataToFlowAsInTheModule) {
  const auto norms_in = [](bool is_norm) {
    model::GraphBuilder g;
    {
      const model::Var weight = g.parameter("norm.weight", {8}, model::ParameterRole::norm);
      const model::Var input = g.input("x", {2, 8}, model::DType::bf16);
      const model::Var other = g.input("y", {2, 8}, model::DType::f32);
      model::Var x = g.to(input, model::DType::f32);
      const model::Var variance = g.mean(g.pow(is_norm ? x : other, 2), {-1}, true);
      x = g.mul(x, g.rsqrt(g.add(variance, 1e-6)));
      const model::Var out = g.mul(weight, g.to_like(x, input));
      g.set_outputs({}, out, {});
    }
    return rms_norm_sites(g.finish()).size();
  };
  EXPECT_EQ(norms_in(true), 1U);
  EXPECT_EQ(norms_in(false), 0U);
}

}  // namespace
}  // namespace headroom::step
