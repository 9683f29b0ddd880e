// What Transformer Engine keeps in FP8, against what its sources say of a layer and of a matrix.
#include <gtest/gtest.h>

#include "model/megatron.h"
#include "step/trace_bytes.h"
#include "step/train_step.h"

namespace headroom::step {
namespace {

using model::MegatronAttention;
using model::MegatronStage;
using op::Fp8Recipe;

constexpr int64_t kSequence = 256;
constexpr int64_t kBatch = 2;
constexpr int64_t kHidden = 128;
constexpr int64_t kHeads = 8;
constexpr int64_t kTokens = kSequence * kBatch;
constexpr int kHopper = 90;
constexpr int kBlackwell = 100;

struct Asked {
  Fp8Recipe recipe = Fp8Recipe::none;
  int compute_capability = kHopper;
  int64_t layers = 1;
  int64_t tensor = 1;
  bool sequence_parallel = false;
};

MegatronStage stage_of(const Asked& asked) {
  MegatronStage stage;
  stage.model.layers = asked.layers;
  stage.model.hidden = kHidden;
  stage.model.heads = stage.model.kv_heads = kHeads;
  stage.model.head_size = kHidden / kHeads;
  stage.model.inner = 4 * kHidden;
  stage.model.padded_vocabulary = 1024;
  stage.model.positions = kSequence;
  stage.model.attention = MegatronAttention::unfused;
  stage.model.fp8.recipe = asked.recipe;
  stage.model.fp8.keeps_twice = asked.recipe != Fp8Recipe::none &&
                                op::keeps_fp8_twice(asked.recipe, asked.compute_capability);
  stage.rank.tensor = asked.tensor;
  stage.rank.chunk_layers = {asked.layers};
  stage.rank.sequence_parallel = asked.sequence_parallel;
  stage.micro_batch = kBatch;
  stage.sequence = kSequence;
  return stage;
}

StepTrace trace_of(const MegatronStage& stage, int compute_capability, int64_t micro_batches = 1) {
  TrainOptions options;
  options.parallel = MegatronOptions();
  options.keep_outputs = false;
  options.fold_layers = false;
  options.accumulation = micro_batches;
  options.optimizer.kind = OptimizerKind::adam;
  options.optimizer.implementation = OptimizerImplementation::fused;
  options.optimizer.counts_on_host = true;
  options.environment.compute_capability = compute_capability;
  const auto graph = model::build_megatron_stage(stage);
  EXPECT_TRUE(graph) << graph.error().to_string();
  auto trace = trace_training(*graph, options);
  EXPECT_TRUE(trace) << trace.error().to_string();
  return std::move(*trace);
}

// Kept for backward by one layer: what two keep more than one.
int64_t saved_by_a_layer(Asked asked) {
  const int64_t one = trace_of(stage_of(asked), asked.compute_capability).saved_bytes;
  asked.layers = 2;
  return trace_of(stage_of(asked), asked.compute_capability).saved_bytes - one;
}

// Of a layer's 34 bytes of each hidden value (megatron_test), the inputs of its four products are
// 2, 2, 2 and 8: in FP8 half of each, but that attention's output stays as it is where the scale
// can be found again.
constexpr int64_t kScores = 5 * kHeads * kSequence * kSequence * kBatch;
constexpr int64_t kStatistics = 2 * 2 * 4 * kTokens;
constexpr int64_t kScale = 4;

TEST(MegatronFp8, ALayerKeepsTheInputsOfItsProductsInOneByte) {
  for (const int compute_capability : {kHopper, kBlackwell}) {
    const auto saved = [&](Fp8Recipe recipe) {
      return saved_by_a_layer({.recipe = recipe, .compute_capability = compute_capability});
    };
    EXPECT_EQ(saved(Fp8Recipe::none), 34 * kTokens * kHidden + kScores + kStatistics);
    EXPECT_EQ(saved(Fp8Recipe::delayed),
              27 * kTokens * kHidden + kScores + kStatistics + 4 * kScale);
    EXPECT_EQ(saved(Fp8Recipe::tensorwise),
              28 * kTokens * kHidden + kScores + kStatistics + 3 * kScale);
  }
}

// With sequence parallelism ranks keep their own rows of what the others' will be put beside.
TEST(MegatronFp8, RanksShareIt) {
  for (const int64_t t : {2, 4}) {
    const auto saved = [&](bool sequence_parallel) {
      return saved_by_a_layer(
          {.recipe = Fp8Recipe::tensorwise, .tensor = t, .sequence_parallel = sequence_parallel});
    };
    EXPECT_EQ(saved(true), (28 * kTokens * kHidden + kScores + kStatistics) / t + 3 * kScale);
    EXPECT_EQ(saved(false), 8 * kTokens * kHidden + (20 * kTokens * kHidden + kScores) / t +
                                kStatistics + 3 * kScale);
  }
}

// A scale for 128 elements of a column in four bytes, or for 32 of them in one.
TEST(MegatronFp8, BlocksHaveTheirScales) {
  constexpr int64_t kInputs = 1 + 1 + 4;  // of hidden values, that are kept in FP8
  const int64_t without = 28 * kTokens * kHidden + kScores + kStatistics;
  EXPECT_EQ(saved_by_a_layer({.recipe = Fp8Recipe::blockwise}),
            without + kInputs * kTokens * kHidden * 4 / 128);
  EXPECT_EQ(saved_by_a_layer({.recipe = Fp8Recipe::mxfp8, .compute_capability = kBlackwell}),
            without + kInputs * kTokens * kHidden / 32);
}

// Weights, gradients and states are the same with FP8 and without.
int64_t caches(const Asked& asked, int64_t micro_batches = 1) {
  Asked plain = asked;
  plain.recipe = Fp8Recipe::none;
  const int cc = asked.compute_capability;
  return bytes_at_end(trace_of(stage_of(asked), cc, micro_batches)) -
         bytes_at_end(trace_of(stage_of(plain), cc, micro_batches));
}

// A layer's four matrices: once where products read either way, else twice; however many
// micro-batches a step has.
TEST(MegatronFp8, WeightsAreKeptOnceAStep) {
  constexpr int64_t kWeights = 12 * kHidden * kHidden;
  constexpr int64_t kMatrices = 4;
  for (const int64_t micro_batches : {1, 3}) {
    EXPECT_EQ(caches({.recipe = Fp8Recipe::tensorwise}, micro_batches),
              2 * kWeights + kMatrices * kScale);
    EXPECT_EQ(
        caches({.recipe = Fp8Recipe::tensorwise, .compute_capability = kBlackwell}, micro_batches),
        kWeights + kMatrices * kScale);
    EXPECT_EQ(caches({.recipe = Fp8Recipe::mxfp8, .compute_capability = kBlackwell}, micro_batches),
              2 * (kWeights + kWeights / 32));
  }
  EXPECT_EQ(caches({.recipe = Fp8Recipe::tensorwise, .tensor = 4}),
            2 * kWeights / 4 + kMatrices * kScale);
}

// DelayedScalingRecipeState: three tensors forward and two backward, a scale and a history each.
TEST(MegatronFp8, DelayedScalesAreMadeOfAHistory) {
  const auto delayed = [](int64_t history) {
    Asked asked{.recipe = Fp8Recipe::delayed};
    MegatronStage stage = stage_of(asked);
    stage.model.fp8.history = history;
    return bytes_at_end(trace_of(stage, kHopper));
  };
  constexpr int64_t kMatrices = 4;
  EXPECT_EQ(delayed(1024) - delayed(1), kMatrices * 5 * 4 * 1023);
  EXPECT_EQ(
      delayed(1) - bytes_at_end(trace_of(stage_of({.recipe = Fp8Recipe::tensorwise}), kHopper)),
      kMatrices * 5 * 4 * 2);
}

// A mixture with a shared expert, by latent attention, in FP8 by any recipe, on ranks that gather
// sequences or not: what modules quantize on the way is gone when the step is over, and what was
// quantized of weights is not.
TEST(MegatronFp8, WhatIsQuantizedOnTheWayGoes) {
  const auto stage_with = [](const Asked& asked) {
    MegatronStage stage = stage_of(asked);
    model::MegatronModel& m = stage.model;
    m.hidden = 512;
    m.heads = m.kv_heads = 8;
    m.head_size = 64;
    m.inner = 1024;
    m.linear_bias = m.qkv_bias = false;
    m.gated = m.rms_norm = true;
    m.latent = {.query_rank = 256,
                .key_rank = 128,
                .key_size = 64,
                .rotary_size = 32,
                .value_size = 64,
                .norms = true};
    m.experts = 4;
    m.grouped_experts = true;
    m.expert_inner = m.shared_inner = 256;
    return stage;
  };
  const auto weights_of = [&](const MegatronStage& stage) {
    const auto graph = model::build_megatron_stage(stage);
    EXPECT_TRUE(graph) << graph.error().to_string();
    int64_t bytes = 0;
    for (const model::Parameter& buffer : graph->buffers) {
      if (buffer.name.find(".fp8") == std::string::npos &&
          buffer.name.find(".scaling_") == std::string::npos) {
        continue;
      }
      bytes += op::product(buffer.shape) * op::element_size(*buffer.dtype);
    }
    return bytes;
  };
  for (const auto& [recipe, compute_capability] :
       {std::pair{Fp8Recipe::delayed, kHopper}, std::pair{Fp8Recipe::tensorwise, kHopper},
        std::pair{Fp8Recipe::tensorwise, kBlackwell}, std::pair{Fp8Recipe::blockwise, kHopper},
        std::pair{Fp8Recipe::mxfp8, kBlackwell}}) {
    for (const bool sequence_parallel : {false, true}) {
      Asked asked{.recipe = recipe,
                  .compute_capability = compute_capability,
                  .tensor = 2,
                  .sequence_parallel = sequence_parallel};
      const MegatronStage stage = stage_with(asked);
      const StepTrace trace = trace_of(stage, compute_capability);
      asked.recipe = Fp8Recipe::none;
      const StepTrace plain = trace_of(stage_with(asked), compute_capability);
      EXPECT_EQ(bytes_at_end(trace) - bytes_at_end(plain), weights_of(stage));
      EXPECT_LT(trace.saved_bytes, plain.saved_bytes) << op::name_of(recipe);
    }
  }
}

// Recomputed layers keep their inputs alone, whatever their products are in.
TEST(MegatronFp8, RecomputedLayersKeepWhatOthersDo) {
  const auto saved = [](Fp8Recipe recipe, int64_t layers) {
    TrainOptions options;
    options.parallel = MegatronOptions();
    options.keep_outputs = false;
    options.fold_layers = false;
    options.environment.compute_capability = kHopper;
    options.checkpointing = CheckpointPolicy::full;
    options.checkpoint_kind = CheckpointKind::reentrant;
    const auto graph = model::build_megatron_stage(stage_of({.recipe = recipe, .layers = layers}));
    return trace_training(*graph, options)->saved_bytes;
  };
  EXPECT_EQ(saved(Fp8Recipe::tensorwise, 3) - saved(Fp8Recipe::tensorwise, 2),
            saved(Fp8Recipe::none, 3) - saved(Fp8Recipe::none, 2));
}

// An expert's token: both products' inputs in one byte, of SwiGLU with what its product gave.
TEST(MegatronFp8, ATokenOfAnExpertKeepsHalfItsInputs) {
  const auto saved = [](Fp8Recipe recipe, int64_t choices) {
    MegatronStage stage = stage_of({.recipe = recipe});
    stage.model.linear_bias = stage.model.qkv_bias = false;
    stage.model.experts = 8;
    stage.model.grouped_experts = stage.model.gated = true;
    stage.model.expert_inner = 96;
    stage.model.experts_per_token = choices;
    return trace_of(stage, kHopper).saved_bytes;
  };
  const auto token = [&](Fp8Recipe recipe) { return saved(recipe, 3) - saved(recipe, 2); };
  EXPECT_EQ(token(Fp8Recipe::none) - token(Fp8Recipe::tensorwise), kTokens * (kHidden + 96));
}

TEST(MegatronFp8, WhatIsNotModelledIsAnError) {
  MegatronStage stage = stage_of({.recipe = Fp8Recipe::tensorwise});
  EXPECT_TRUE(model::build_megatron_stage(stage));
  stage.model.local = true;
  EXPECT_FALSE(model::build_megatron_stage(stage));
  stage = stage_of({.recipe = Fp8Recipe::tensorwise});
  stage.model.linear_bias = false;
  stage.model.experts = 4;
  stage.model.expert_inner = 96;
  EXPECT_FALSE(model::build_megatron_stage(stage));
}

// What a stage is refused for, or nothing.
std::string refusal_of(const MegatronStage& stage) {
  const auto built = model::build_megatron_stage(stage);
  if (built) return "";
  EXPECT_FALSE(built.error().hint.empty());
  return built.error().message;
}

// Both sizes of each weight: products forward sum over its columns, those backward over its rows.
TEST(MegatronFp8, AWeightThatProductsDoNotTakeIsNamed) {
  MegatronStage stage = stage_of({.recipe = Fp8Recipe::tensorwise});
  stage.model.inner = 520;
  EXPECT_EQ(refusal_of(stage),
            "decoder.layers.0.mlp.linear_fc1.weight has 520 rows (outputs) on a rank: products in "
            "FP8 (tensorwise) take multiples of 16");
  stage.model.gated = true;  // 1040 rows, but the second product's 520 columns
  EXPECT_EQ(refusal_of(stage),
            "decoder.layers.0.mlp.linear_fc2.weight has 520 columns (inputs) on a rank: products "
            "in FP8 (tensorwise) take multiples of 16");
  stage = stage_of({.recipe = Fp8Recipe::delayed});
  stage.model.heads = stage.model.kv_heads = 4;
  stage.model.head_size = 20;
  EXPECT_EQ(refusal_of(stage), "");
  stage.model.kv_heads = 1;  // 4 * 20 columns, (4 + 2) * 20 rows
  EXPECT_EQ(refusal_of(stage),
            "decoder.layers.0.self_attention.linear_qkv.weight has 120 rows (outputs) on a rank: "
            "products in FP8 (delayed) take multiples of 16");
}

// DeepSeek-V3's: 576 rows of the narrow keys are no whole blocks of 128, nor have they to be.
TEST(MegatronFp8, RowsOfAWeightNeedBeNoWholeBlocks) {
  MegatronStage stage = stage_of({.recipe = Fp8Recipe::blockwise});
  stage.model.heads = stage.model.kv_heads = 8;
  stage.model.linear_bias = stage.model.qkv_bias = false;
  stage.model.latent = {
      .query_rank = 128, .key_rank = 512, .key_size = 64, .rotary_size = 64, .value_size = 64};
  EXPECT_EQ(refusal_of(stage), "");
  stage.model.latent.rotary_size = 8;
  EXPECT_EQ(refusal_of(stage),
            "decoder.layers.0.self_attention.linear_kv_down_proj.weight has 520 rows (outputs) on "
            "a rank: products in FP8 (blockwise) take multiples of 16");
}

// A weight's gradient sums over tokens, which GPUs whose products read rows alone have in columns.
TEST(MegatronFp8, TokensThatProductsDoNotTakeAreNamed) {
  const auto refusal = [](int64_t sequence, int compute_capability, int64_t tensor = 1) {
    MegatronStage stage = stage_of({.recipe = Fp8Recipe::tensorwise,
                                    .compute_capability = compute_capability,
                                    .tensor = tensor,
                                    .sequence_parallel = tensor > 1});
    stage.sequence = sequence;
    stage.micro_batch = 1;
    return refusal_of(stage);
  };
  EXPECT_EQ(refusal(250, kHopper),
            "the input of a layer has 250 rows (tokens of a micro-batch) on a rank: products in "
            "FP8 (tensorwise) take multiples of 8");
  EXPECT_EQ(refusal(248, kHopper),
            "the input that a weight's gradient is made of has 248 rows (tokens of a micro-batch) "
            "on a rank: products in FP8 (tensorwise) take multiples of 16");
  EXPECT_EQ(refusal(248, kBlackwell), "");
  EXPECT_EQ(refusal(240, kHopper), "");
  EXPECT_EQ(refusal(240, kHopper, 2), "");  // 120 of each rank's own, 240 gathered
}

}  // namespace
}  // namespace headroom::step
