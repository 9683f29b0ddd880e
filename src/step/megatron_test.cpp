// Megatron-LM's ranks, against formulas that others published and against what must hold of any
// pipeline.
#include <gtest/gtest.h>

#include "model/megatron.h"
#include "step/trace_bytes.h"
#include "step/train_step.h"

namespace headroom::step {
namespace {

using model::MegatronAttention;
using model::MegatronStage;

constexpr int64_t kSequence = 256;
constexpr int64_t kBatch = 2;
constexpr int64_t kHidden = 128;
constexpr int64_t kHeads = 8;

MegatronStage stage_with(int64_t layers, int64_t tensor, bool sequence_parallel) {
  MegatronStage stage;
  stage.model.layers = layers;
  stage.model.hidden = kHidden;
  stage.model.heads = stage.model.kv_heads = kHeads;
  stage.model.head_size = kHidden / kHeads;
  stage.model.inner = 4 * kHidden;
  stage.model.padded_vocabulary = 1024;
  stage.model.positions = kSequence;
  stage.model.attention = MegatronAttention::unfused;
  stage.rank.tensor = tensor;
  stage.rank.chunk_layers = {layers};
  stage.rank.sequence_parallel = sequence_parallel;
  stage.micro_batch = kBatch;
  stage.sequence = kSequence;
  return stage;
}

TrainOptions options_with(const MegatronOptions& data) {
  TrainOptions options;
  options.parallel = data;
  options.keep_outputs = false;
  options.fold_layers = false;
  options.optimizer.kind = OptimizerKind::adam;
  options.optimizer.implementation = OptimizerImplementation::fused;
  options.optimizer.counts_on_host = true;
  return options;
}

StepTrace trace_of(const MegatronStage& stage, const TrainOptions& options) {
  const auto graph = model::build_megatron_stage(stage);
  EXPECT_TRUE(graph) << graph.error().to_string();
  auto trace = trace_training(*graph, options);
  EXPECT_TRUE(trace) << trace.error().to_string();
  return std::move(*trace);
}

// Kept for backward by one layer: what two layers keep more than one.
int64_t saved_by_a_layer(int64_t tensor, bool sequence_parallel) {
  const TrainOptions options = options_with({});
  return trace_of(stage_with(2, tensor, sequence_parallel), options).saved_bytes -
         trace_of(stage_with(1, tensor, sequence_parallel), options).saved_bytes;
}

// "Reducing Activation Recomputation in Large Transformer Models" (arXiv 2205.05198), table 2:
// bytes of a layer's activations in 16-bit types, with dropout, s sequence, b batch, h hidden, a
// heads, t tensor parallel ranks. The statistics of both norms, in float32, it leaves out.
constexpr int64_t kTokens = kSequence * kBatch;
constexpr int64_t kScores = 5 * kHeads * kSequence * kSequence * kBatch;  // 5as/h of sbh
constexpr int64_t kStatistics = 2 * 2 * 4 * kTokens;

TEST(Megatron, ALayerKeepsWhatThePaperOnRecomputationCounts) {
  EXPECT_EQ(saved_by_a_layer(1, false), 34 * kTokens * kHidden + kScores + kStatistics);
}

// The paper counts Megatron-LM's own modules, of which a product keeps what its norm gave.
TEST(Megatron, ItsOwnModulesKeepTheSame) {
  const auto saved = [](int64_t layers) {
    MegatronStage stage = stage_with(layers, 1, false);
    stage.model.local = true;
    return trace_of(stage, options_with({})).saved_bytes;
  };
  EXPECT_EQ(saved(2) - saved(1), 34 * kTokens * kHidden + kScores + kStatistics);
}

TEST(Megatron, WithTensorParallelismPartOfItIsWholeOnEachRank) {
  for (const int64_t t : {2, 4}) {
    EXPECT_EQ(saved_by_a_layer(t, false),
              10 * kTokens * kHidden + (24 * kTokens * kHidden + kScores) / t + kStatistics);
  }
}

TEST(Megatron, WithSequenceParallelismAllOfItIsShared) {
  for (const int64_t t : {2, 4}) {
    EXPECT_EQ(saved_by_a_layer(t, true), (34 * kTokens * kHidden + kScores) / t + kStatistics / t);
  }
}

// The same paper: what selective recomputation keeps of a layer has no scores in it.
TEST(Megatron, RecomputedAttentionKeepsNoScores) {
  TrainOptions options = options_with({});
  options.checkpointing = CheckpointPolicy::core_attention;
  options.checkpoint_kind = CheckpointKind::reentrant;
  const int64_t layer = trace_of(stage_with(2, 1, false), options).saved_bytes -
                        trace_of(stage_with(1, 1, false), options).saved_bytes;
  EXPECT_EQ(layer, 34 * kTokens * kHidden + kStatistics);
}

int64_t bytes_of(const StepTrace& trace, memory::Category category) {
  return bytes_at_end(
      trace, [=](const memory::BufferInfo& buffer) { return buffer.category == category; });
}

// The embeddings' and layers' trained numbers, as anybody would count them.
constexpr int64_t kParameters = 1024 * kHidden + kSequence * kHidden     // embeddings
                                + 12 * kHidden * kHidden + 13 * kHidden  // a layer
                                + 2 * kHidden;                           // the last norm

TEST(Megatron, MixedPrecisionTakesEighteenBytesAParameter) {
  const StepTrace trace = trace_of(stage_with(1, 1, false), options_with({}));
  EXPECT_EQ(bytes_of(trace, memory::Category::gradient), 4 * kParameters);
  EXPECT_EQ(bytes_of(trace, memory::Category::optimizer_state), 12 * kParameters);
}

TEST(Megatron, TheDistributedOptimizerSharesTwelveOfThem) {
  MegatronOptions data;
  data.data_ranks = 4;
  data.distributed_optimizer = true;
  const StepTrace trace = trace_of(stage_with(1, 1, false), options_with(data));
  const int64_t gradients = bytes_of(trace, memory::Category::gradient);
  // Each parameter begins on a boundary of 64, the block ends on one of 512.
  EXPECT_GE(gradients, 4 * kParameters);
  EXPECT_LE(gradients, 4 * (kParameters + 64 * 16 + 512));
  const int64_t states = bytes_of(trace, memory::Category::optimizer_state);
  EXPECT_LE(states, 3 * gradients / 4);
  EXPECT_GE(states, 3 * gradients / 4 - int64_t{12} * 64 * 16);
}

MegatronStage pipeline_stage(int64_t stage, int64_t stages) {
  MegatronStage of = stage_with(4, 1, false);
  of.rank.pipeline = stages;
  of.rank.stage = stage;
  of.rank.chunk_layers = {4 / stages};
  return of;
}

// By how much a step's peak grows where it has `more` micro-batches than one.
int64_t growth(int64_t stage, int64_t more) {
  TrainOptions options = options_with({});
  options.pipeline = {4, stage};
  const MegatronStage of = pipeline_stage(stage, 4);
  const int64_t alone = trace_of(of, options).peak_live_bytes;
  options.accumulation = 1 + more;
  return trace_of(of, options).peak_live_bytes - alone;
}

TEST(Megatron, AStageHoldsAsManyMicroBatchesAsStagesComeBehindIt) {
  const int64_t saved = trace_of(pipeline_stage(1, 4), options_with({})).saved_bytes;
  // Two more may wait behind the first one of stage 1, however many there are.
  EXPECT_GE(growth(1, 2), 2 * saved);
  EXPECT_LT(growth(1, 2), 2 * saved + saved / 2);
  EXPECT_EQ(growth(1, 3), growth(1, 6));
  // The last one holds no more than what was sent back to the stage before.
  EXPECT_LT(growth(3, 6), saved / 4);
}

TEST(Megatron, StepsThatAreRepeatedAreThoseThatAreRun) {
  for (const int64_t stage : {0, 2, 3}) {
    TrainOptions options = options_with({});
    options.pipeline = {4, stage};
    options.accumulation = 5;
    const MegatronStage of = pipeline_stage(stage, 4);
    const StepTrace repeated = trace_of(of, options);
    options.repeat_steps = false;
    const StepTrace run = trace_of(of, options);
    EXPECT_EQ(repeated.peak_live_bytes, run.peak_live_bytes) << stage;
    EXPECT_EQ(repeated.memory.events.size(), run.memory.events.size()) << stage;
  }
}

// Stage `stage` of four, with two chunks of a layer each.
MegatronStage interleaved_stage(int64_t stage) {
  MegatronStage of = pipeline_stage(stage, 4);
  of.model.layers = 8;
  of.rank.chunk_layers = {1, 1};
  return of;
}

StepTrace interleaved_trace(int64_t stage, int64_t micro_batches, bool repeats = true) {
  TrainOptions options = options_with({});
  options.pipeline = {4, stage, 2};
  options.accumulation = micro_batches;
  options.repeat_steps = repeats;
  return trace_of(interleaved_stage(stage), options);
}

TEST(Megatron, ChunksOfAStageWaitForTheirBackwardPasses) {
  const int64_t saved = trace_of(pipeline_stage(1, 4), options_with({})).saved_bytes;
  // Stage 1 may have 2 * 2 + 4 passes before the first one backward, stage 2 two fewer.
  const int64_t more =
      interleaved_trace(1, 8).peak_live_bytes - interleaved_trace(2, 8).peak_live_bytes;
  EXPECT_LT(std::abs(more - 2 * saved), saved / 10);
  EXPECT_EQ(interleaved_trace(1, 12).peak_live_bytes, interleaved_trace(1, 24).peak_live_bytes);
}

TEST(Megatron, RepeatedStepsOfChunksAreThoseThatAreRun) {
  for (const int64_t stage : {0, 3}) {
    const StepTrace repeated = interleaved_trace(stage, 8);
    const StepTrace run = interleaved_trace(stage, 8, false);
    EXPECT_EQ(repeated.peak_live_bytes, run.peak_live_bytes) << stage;
    EXPECT_EQ(repeated.memory.events.size(), run.memory.events.size()) << stage;
  }
}

TEST(Megatron, EachChunkIsReducedFromABlockOfItsOwn) {
  MegatronOptions data;
  data.data_ranks = 4;
  data.distributed_optimizer = true;
  TrainOptions options = options_with(data);
  options.pipeline = {4, 1, 2};
  options.accumulation = 8;
  const StepTrace trace = trace_of(interleaved_stage(1), options);
  std::vector<int64_t> blocks;
  for (const memory::BufferInfo& info : trace.memory.buffers) {
    if (info.category != memory::Category::gradient) continue;
    if (info.requested_bytes > 4 * 12 * kHidden * kHidden) blocks.push_back(info.requested_bytes);
  }
  EXPECT_EQ(blocks.size(), 2);
}

// Of each token latent attention keeps the narrow vectors, beside queries, keys, values and output.
TEST(Megatron, LatentAttentionKeepsItsNarrowVectors) {
  const auto saved = [](MegatronStage stage) {
    stage.model.attention = MegatronAttention::fused;
    return trace_of(stage, options_with({})).saved_bytes;
  };
  const MegatronStage plain = stage_with(1, 1, false);
  MegatronStage latent = plain;
  latent.model.latent = {.query_rank = 48,
                         .key_rank = 32,
                         .key_size = 16,
                         .rotary_size = 8,
                         .value_size = 24,
                         .fused_rotary = true};
  const int64_t narrow = 2 * 48 + 2 * (32 + 8);
  const int64_t heads = 2 * (2 * 24 + 2 * 24) - 2 * 4 * (kHidden / kHeads);
  EXPECT_EQ(saved(latent) - saved(plain), kTokens * (narrow + kHeads * heads));
}

TEST(Megatron, LatentAttentionIsDividedByHeads) {
  MegatronStage stage = stage_with(1, 1, false);
  stage.model.linear_bias = stage.model.qkv_bias = false;
  stage.model.latent = {.query_rank = 48,
                        .key_rank = 32,
                        .key_size = 16,
                        .rotary_size = 8,
                        .value_size = 24,
                        .norms = true};
  const auto parameters = [](const MegatronStage& of) {
    return model::parameter_count(*model::build_megatron_stage(of), false);
  };
  // Up and out, by heads; down, by nobody.
  const int64_t by_heads = kHeads * (48 * 24 + 32 * (16 + 24) + 24 * kHidden);
  const int64_t others = (48 + 32 + 8) * kHidden + 2 * (48 + 32) + 2 * kHidden;
  const int64_t mlp = 8 * kHidden * kHidden + 2 * kHidden;
  const int64_t ends = 1024 * kHidden + kSequence * kHidden + 2 * kHidden;
  EXPECT_EQ(parameters(stage), by_heads + others + mlp + ends);
  stage.rank.tensor = 4;
  stage.rank.sequence_parallel = true;
  EXPECT_EQ(parameters(stage), by_heads / 4 + others + 2 * kHidden * kHidden + 2 * kHidden +
                                   1024 * kHidden / 4 + kSequence * kHidden + 2 * kHidden);
  EXPECT_GT(trace_of(stage, options_with({})).peak_live_bytes, 0);
}

TEST(Megatron, ExpertsGetTheirShare) {
  const auto saved = [](double share) {
    MegatronStage stage = stage_with(1, 1, false);
    stage.model.linear_bias = false;
    stage.model.experts = 8;
    stage.model.expert_inner = 96;
    stage.rank.expert = 4;
    stage.model.expert_share = share;
    return trace_of(stage, options_with({})).saved_bytes;
  };
  const int64_t even = saved(1);
  EXPECT_GT(saved(1.5), even);
  EXPECT_LT(saved(0.5), even);
}

// get_capacity in moe_utils.py: ceil(tokens * topk / experts * factor) of each rank's own tokens.
TEST(Megatron, ExpertsTakeNoMoreThanTheirCapacity) {
  const auto stage_of = [](double share, double capacity, bool fills) {
    MegatronStage stage = stage_with(1, 1, false);
    stage.model.linear_bias = false;
    stage.model.experts = 8;
    stage.model.experts_per_token = 2;
    stage.model.expert_inner = 96;
    stage.rank.expert = 4;
    stage.model.expert_share = share;
    stage.model.expert_capacity = capacity;
    stage.model.fills_capacity = fills;
    return stage;
  };
  const auto saved = [&](double share, double capacity, bool fills) {
    return trace_of(stage_of(share, capacity, fills), options_with({})).saved_bytes;
  };
  // 128 choices an expert of each rank, 1,024 of the two experts here.
  EXPECT_EQ(saved(3, 1.5, false), saved(1.5, 0, false));
  EXPECT_EQ(saved(1, 1.5, false), saved(1, 0, false));
  EXPECT_LT(saved(3, 1.5, false), saved(3, 0, false));
  // 128 / 127.5, which 128 is as well: of a part of a token there is one.
  EXPECT_EQ(saved(3, 127.5 / 128, false), saved(1, 0, false));
  // Filled up, whatever the router does; to no more than there is.
  EXPECT_EQ(saved(0.5, 1.25, true), saved(1.25, 0, false));
  EXPECT_EQ(saved(3, 1.25, true), saved(1.25, 0, false));
  EXPECT_EQ(saved(1, 100, true), saved(4, 0, false));
  EXPECT_FALSE(model::build_megatron_stage(stage_of(1, 0, true)));
  EXPECT_FALSE(model::build_megatron_stage(stage_of(1, -1, false)));
}

// shared_experts.py: the products' inputs and the activation's, beside the normalized tokens, which
// the router keeps already; with a gate what it weighs, and the weights.
TEST(Megatron, ASharedExpertKeepsItsWidth) {
  constexpr int64_t kWidth = 160;
  const auto of = [](int64_t width, bool gate, bool gated) {
    MegatronStage stage = stage_with(1, 1, false);
    stage.model.linear_bias = stage.model.qkv_bias = false;
    stage.model.experts = 8;
    stage.model.expert_inner = 96;
    stage.model.gated = gated;
    stage.model.shared_inner = width;
    stage.model.shared_gate = gate;
    return stage;
  };
  const auto saved = [](const MegatronStage& stage) {
    return trace_of(stage, options_with({})).saved_bytes;
  };
  const auto parameters = [](const MegatronStage& stage) {
    return model::parameter_count(*model::build_megatron_stage(stage), false);
  };
  EXPECT_EQ(saved(of(kWidth, false, true)) - saved(of(0, false, true)), 6 * kTokens * kWidth);
  EXPECT_EQ(saved(of(kWidth, false, false)) - saved(of(0, false, false)), 4 * kTokens * kWidth);
  EXPECT_EQ(saved(of(kWidth, true, true)) - saved(of(kWidth, false, true)),
            kTokens * (2 * kHidden + 2));
  EXPECT_EQ(parameters(of(kWidth, false, true)) - parameters(of(0, false, true)),
            3 * kWidth * kHidden);
  EXPECT_EQ(parameters(of(kWidth, true, true)) - parameters(of(kWidth, false, true)), kHidden);
}

// fused_bias_dropout.py: by plain operators the same is kept, the dropout's mask.
TEST(Megatron, PlainDropoutAndAdditionKeepTheSame) {
  const auto trace = [](bool plain) {
    MegatronStage stage = stage_with(2, 1, false);
    stage.model.plain_dropout_add = plain;
    return trace_of(stage, options_with({}));
  };
  const StepTrace fused = trace(false);
  const StepTrace plain = trace(true);
  EXPECT_EQ(plain.saved_bytes, fused.saved_bytes);
  EXPECT_GT(plain.calls.size(), fused.calls.size());
}

// rope_utils.py: the cosines and sines, of queries and of keys, are as wide as what is turned.
TEST(Megatron, APartOfAHeadIsTurnedByPlainOperators) {
  const auto saved = [](int64_t columns) {
    MegatronStage stage = stage_with(1, 1, false);
    stage.model.positions = 0;
    stage.model.rotary = stage.model.plain_rotary = true;
    stage.model.rotary_size = columns;
    return trace_of(stage, options_with({})).saved_bytes;
  };
  const int64_t size = stage_with(1, 1, false).model.head_size;
  EXPECT_EQ(saved(0), saved(size));
  EXPECT_EQ(saved(size) - saved(size / 2), 2 * 2 * kSequence * (size / 2) * 2);
}

// mlp.py: by plain operators the biased product is kept in the place of the product; of SwiGLU what
// SiLU gave, too.
TEST(Megatron, PlainActivationsKeepWhatTheirOperatorsNeed) {
  const auto layer = [](bool gated, bool plain) {
    const auto saved = [&](int64_t layers) {
      MegatronStage stage = stage_with(layers, 1, false);
      stage.model.gated = gated;
      stage.model.plain_activation = plain;
      return trace_of(stage, options_with({})).saved_bytes;
    };
    return saved(2) - saved(1);
  };
  EXPECT_EQ(layer(false, true), layer(false, false));
  EXPECT_EQ(layer(true, true) - layer(true, false), 2 * kTokens * 4 * kHidden);
}

// dot_product_attention.py and fused_softmax.py: without a kernel the softmax is kept in float32
// where it is computed so, and each layer has a mask of its own where no loader made one.
TEST(Megatron, TheirOwnSoftmaxWithoutAKernelKeepsMore) {
  const auto layer = [](bool wide, bool scaled, bool from_loader) {
    const auto saved = [&](int64_t layers) {
      MegatronStage stage = stage_with(layers, 1, false);
      stage.model.local = true;
      stage.model.fused_softmax = false;
      stage.model.wide_softmax = wide;
      stage.model.scaled_softmax = scaled;
      stage.rank.mask_from_loader = from_loader;
      return trace_of(stage, options_with({})).saved_bytes;
    };
    return saved(2) - saved(1);
  };
  constexpr int64_t kFused = 34 * kTokens * kHidden + kScores + kStatistics;
  constexpr int64_t kMask = kSequence * kSequence;
  EXPECT_EQ(layer(false, false, true), kFused);
  EXPECT_EQ(layer(true, false, true), kFused + kScores * 2 / 5);
  EXPECT_EQ(layer(true, true, true), kFused + kScores * 2 / 5);
  EXPECT_EQ(layer(false, false, false), kFused + kMask);
  EXPECT_EQ(layer(true, true, false), kFused + kScores * 2 / 5 + kMask);
}

// fused_cross_entropy.py, compiled: the gradient is made of a copy of the softmax, in float32.
TEST(Megatron, TheCompiledLossCopiesTheSoftmax) {
  constexpr int64_t kVocabulary = 65'536;
  const auto peak = [](bool compiled) {
    MegatronStage stage = stage_with(1, 1, false);
    stage.model.padded_vocabulary = kVocabulary;
    stage.model.tied = false;
    stage.model.compiled_loss = compiled;
    return trace_of(stage, options_with({})).peak_live_bytes;
  };
  const int64_t more = peak(true) - peak(false);
  EXPECT_LE(more, 4 * kTokens * kVocabulary);
  EXPECT_GT(more, 4 * kTokens * (kVocabulary - 4 * kHidden));
}

// What an expert's token adds to what is kept: its input, and of the wider side the product, for
// GELU the activation and its weighted form, for SwiGLU the weighted form alone.
TEST(Megatron, ATokenOfAnExpertKeepsItsInputAndActivations) {
  MegatronStage stage = stage_with(1, 1, false);
  stage.model.linear_bias = stage.model.qkv_bias = false;
  stage.model.experts = 8;
  stage.model.expert_inner = 96;
  const auto saved = [&](int64_t choices, bool gated) {
    stage.model.experts_per_token = choices;
    stage.model.gated = gated;
    return trace_of(stage, options_with({})).saved_bytes;
  };
  // Index and router's choice, weight and softmax.
  const int64_t small = 8 + 8 + 2 + 4;
  EXPECT_EQ(saved(3, false) - saved(2, false), kTokens * (2 * kHidden + 6 * 96 + small));
  EXPECT_EQ(saved(3, true) - saved(2, true), kTokens * (2 * kHidden + 4 * 96 + 2 * 96 + small));
}

TEST(Megatron, ExpertsAreMasteredByTheirOwnRanks) {
  MegatronStage stage = stage_with(1, 1, false);
  stage.model.linear_bias = stage.model.qkv_bias = false;
  stage.model.experts = 8;
  stage.model.expert_inner = 96;
  stage.rank.expert = 4;
  MegatronOptions data;
  data.data_ranks = 8;
  data.distributed_optimizer = true;
  const auto states = [&](int64_t expert_ranks) {
    data.expert_ranks = expert_ranks;
    return bytes_of(trace_of(stage, options_with(data)), memory::Category::optimizer_state);
  };
  // Two experts are here, which one rank steps alone, or two share.
  const int64_t experts = int64_t{2} * 2 * kHidden * 96;
  EXPECT_EQ(states(1) - states(2), 12 * experts / 2);
}

TEST(Megatron, WhatDoesNotDivideIsAnError) {
  MegatronStage stage = stage_with(1, 3, false);
  EXPECT_FALSE(model::build_megatron_stage(stage));
  stage = stage_with(1, 1, false);
  stage.rank.stage = 1;
  EXPECT_FALSE(model::build_megatron_stage(stage));
  stage = stage_with(1, 1, false);
  stage.model.hidden = int64_t{1} << 40;
  EXPECT_FALSE(model::build_megatron_stage(stage));
}

}  // namespace
}  // namespace headroom::step
