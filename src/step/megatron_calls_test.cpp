// What a rank of Megatron-LM's launches and sends, against what anybody would count.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "model/megatron.h"
#include "step/train_step.h"

namespace headroom::step {
namespace {

using model::MegatronAttention;
using model::MegatronStage;
using op::OpKind;

constexpr int64_t kSequence = 256;
constexpr int64_t kBatch = 2;
constexpr int64_t kHidden = 128;
constexpr int64_t kHeads = 8;
constexpr int64_t kHead = kHidden / kHeads;
constexpr int64_t kVocabulary = 1024;

MegatronStage one_layer(MegatronAttention attention) {
  MegatronStage stage;
  stage.model.layers = 1;
  stage.model.hidden = kHidden;
  stage.model.heads = stage.model.kv_heads = kHeads;
  stage.model.head_size = kHead;
  stage.model.inner = 4 * kHidden;
  stage.model.padded_vocabulary = kVocabulary;
  stage.model.positions = kSequence;
  stage.model.attention = attention;
  stage.rank.chunk_layers = {1};
  stage.micro_batch = kBatch;
  stage.sequence = kSequence;
  return stage;
}

// The calls of a step, the only one.
std::vector<OperatorCall> calls_of(const MegatronStage& stage, const MegatronOptions& data = {},
                                   const Pipeline& pipeline = {}) {
  TrainOptions options;
  options.parallel = data;
  options.keep_outputs = false;
  options.fold_layers = false;
  options.pipeline = pipeline;
  options.steps = 1;
  const auto graph = model::build_megatron_stage(stage);
  EXPECT_TRUE(graph) << graph.error().to_string();
  if (!graph) return {};
  auto trace = trace_training(*graph, options);
  EXPECT_TRUE(trace) << trace.error().to_string();
  return trace ? trace->calls : std::vector<OperatorCall>();
}

std::vector<OperatorCall> only(const std::vector<OperatorCall>& calls, OpKind kind, Phase phase) {
  std::vector<OperatorCall> some;
  for (const OperatorCall& call : calls) {
    if (call.kind == kind && call.phase == phase) some.push_back(call);
  }
  return some;
}

int64_t bytes_sent(const std::vector<OperatorCall>& calls, Phase phase) {
  int64_t bytes = 0;
  for (const OperatorCall& call : only(calls, OpKind::send_receive, phase)) {
    bytes += call.bytes_written;
  }
  return bytes;
}

// AttnFuncWithCPAndKVP2P: forward passes keys and values on but in the last step; backward in every
// one, with their gradients, but of those none in the first and nothing else in the last.
TEST(MegatronCalls, ARingSendsKeysValuesAndTheirGradients) {
  for (const MegatronAttention kind : {MegatronAttention::flash, MegatronAttention::fused}) {
    for (const int64_t ranks : {2, 4}) {
      MegatronStage stage = one_layer(kind);
      stage.rank.context = ranks;
      const auto calls = calls_of(stage);
      const int64_t both = 2 * kBatch * (kSequence / ranks) * kHidden * 2;
      EXPECT_EQ(bytes_sent(calls, Phase::forward), (ranks - 1) * both) << ranks;
      EXPECT_EQ(bytes_sent(calls, Phase::backward), 2 * (ranks - 1) * both) << ranks;
    }
  }
}

// What is computed with comes first: no step of the ring begins before the one before it was sent.
TEST(MegatronCalls, EachStepOfARingWaitsForWhatWasSent) {
  constexpr int64_t kRanks = 4;
  MegatronStage stage = one_layer(MegatronAttention::fused);
  stage.rank.context = kRanks;
  int64_t sent = 0;
  int64_t waited = 0;
  bool was_sent = false;  // by the latest collective
  for (const OperatorCall& call : calls_of(stage)) {
    const bool is_sent = call.kind == OpKind::send_receive;
    if (call.awaits == 1 && was_sent) ++waited;
    if (op::group_of(call.kind) == op::OpGroup::communication) was_sent = is_sent;
    if (!is_sent) continue;
    EXPECT_GE(waited, sent);
    ++sent;
  }
  EXPECT_EQ(sent, 2 * kRanks - 1);
  EXPECT_EQ(waited, sent);
}

double attention_flops(const std::vector<OperatorCall>& calls, Phase phase) {
  double flops = 0;
  for (const OperatorCall& call : only(calls, OpKind::flash_attention, phase)) flops += call.flops;
  return flops;
}

TEST(MegatronCalls, MaskedByCauseAttentionIsHalf) {
  constexpr double kScores = 1.0 * kBatch * kHeads * kSequence * kSequence;
  for (const MegatronAttention kind : {MegatronAttention::flash, MegatronAttention::fused}) {
    const auto calls = calls_of(one_layer(kind));
    EXPECT_EQ(attention_flops(calls, Phase::forward), kScores / 2 * 4 * kHead);
    EXPECT_EQ(attention_flops(calls, Phase::backward), kScores / 2 * 10 * kHead);
    for (const OperatorCall& call : only(calls, OpKind::flash_attention, Phase::forward)) {
      EXPECT_EQ(call.rows, kSequence);
      EXPECT_EQ(call.keys, kSequence);
    }
  }
}

// Ranks that share a sequence share what it costs out: each has its tokens, but of attention their
// part by all tokens.
TEST(MegatronCalls, RanksOnARingShareAllOfAttention) {
  for (const MegatronAttention kind : {MegatronAttention::flash, MegatronAttention::fused}) {
    const auto whole = calls_of(one_layer(kind));
    for (const int64_t ranks : {2, 4}) {
      MegatronStage stage = one_layer(kind);
      stage.rank.context = ranks;
      const auto calls = calls_of(stage);
      for (const Phase phase : {Phase::forward, Phase::backward}) {
        EXPECT_EQ(static_cast<double>(ranks) * attention_flops(calls, phase),
                  attention_flops(whole, phase));
      }
    }
  }
}

// However layers are divided, the ranks together compute no less than one would.
TEST(MegatronCalls, RanksTogetherComputeWhatOneDoes) {
  const auto flops = [](const MegatronStage& stage) {
    double sum = 0;
    for (const OperatorCall& call : calls_of(stage)) {
      if (call.phase == Phase::forward || call.phase == Phase::backward) sum += call.flops;
    }
    return sum;
  };
  for (const MegatronAttention kind : {MegatronAttention::flash, MegatronAttention::fused}) {
    const double whole = flops(one_layer(kind));
    for (const int64_t context : {1, 2, 4}) {
      for (const int64_t tensor : {1, 2, 4}) {
        MegatronStage stage = one_layer(kind);
        stage.rank.context = context;
        stage.rank.tensor = tensor;
        stage.rank.sequence_parallel = tensor > 1;
        EXPECT_GE(static_cast<double>(context * tensor) * flops(stage), 0.999 * whole)
            << "context " << context << ", tensor " << tensor;
      }
    }
  }
}

// An encoder sees all of its tokens, a decoder all of the encoder's and half of its own.
TEST(MegatronCalls, AttentionOfAnEncoderIsWhole) {
  constexpr int64_t kBehind = 64;
  constexpr double kPairs = 1.0 * kSequence * kSequence     // the encoder's
                            + 1.0 * kBehind * kSequence     // across
                            + 1.0 * kBehind * kBehind / 2;  // the decoder's
  for (const MegatronAttention kind : {MegatronAttention::flash, MegatronAttention::fused}) {
    MegatronStage stage = one_layer(kind);
    stage.model.decoder_layers = 1;
    stage.decoder_sequence = kBehind;
    const auto calls = calls_of(stage);
    EXPECT_EQ(attention_flops(calls, Phase::forward), kBatch * kHeads * kPairs * 4 * kHead);
    const auto attention = only(calls, OpKind::flash_attention, Phase::forward);
    ASSERT_EQ(attention.size(), 3U);
    EXPECT_EQ(attention[1].rows, kBehind);
    EXPECT_EQ(attention[1].keys, kBehind);
    EXPECT_EQ(attention[2].rows, kBehind);
    EXPECT_EQ(attention[2].keys, kSequence);
  }
}

// Keys of 24 + 8, values of 16: scores cost as much as keys are wide, what they weight as values.
TEST(MegatronCalls, LatentAttentionCountsBothWidths) {
  constexpr double kScores = 1.0 * kBatch * kHeads * kSequence * kSequence / 2;
  MegatronStage stage = one_layer(MegatronAttention::fused);
  stage.model.positions = 0;
  stage.model.rotary = true;
  stage.model.qkv_bias = stage.model.linear_bias = false;
  stage.model.latent = {0, 32, 24, 8, 16, false, false};
  const auto fused = calls_of(stage);
  EXPECT_EQ(attention_flops(fused, Phase::forward), kScores * 2 * (32 + 16));
  EXPECT_EQ(attention_flops(fused, Phase::backward), kScores * 2 * (3 * 32 + 2 * 16));
  // The flash-attn package pads the narrower one, whichever that is.
  for (const int64_t value : {16, 48}) {
    stage.model.attention = MegatronAttention::flash;
    stage.model.latent.value_size = value;
    EXPECT_EQ(attention_flops(calls_of(stage), Phase::forward),
              kScores * 4 * static_cast<double>(std::max<int64_t>(32, value)));
  }
}

TEST(MegatronCalls, GradientsAreReducedAmongThoseWhoHoldThem) {
  MegatronOptions data;
  data.data_ranks = 16;
  data.expert_ranks = 2;
  data.expert_apart = 8;
  MegatronStage stage = one_layer(MegatronAttention::flash);
  stage.model.linear_bias = false;
  stage.model.experts = 16;
  stage.model.expert_inner = 64;
  stage.rank.expert = 8;
  std::vector<RankGroup> groups;
  for (const OperatorCall& call :
       only(calls_of(stage, data), OpKind::all_reduce, Phase::backward)) {
    if (call.peers == Peers::data) groups.push_back(call.group);
  }
  EXPECT_EQ(groups, (std::vector<RankGroup>{{16, 1}, {2, 8}}));
}

TEST(MegatronCalls, EndsOfAPipelineReduceTheEmbeddingTheyShare) {
  MegatronOptions data;
  data.shares_embedding = true;
  data.embedding_group = {2, 24};
  MegatronStage stage = one_layer(MegatronAttention::flash);
  stage.rank.pipeline = 4;
  for (const int64_t at : {0, 3}) {
    stage.rank.stage = at;
    const auto reduced =
        only(calls_of(stage, data, {4, at, 1}), OpKind::all_reduce, Phase::backward);
    ASSERT_EQ(reduced.size(), 1U) << at;
    EXPECT_EQ(reduced[0].group, (RankGroup{2, 24}));
    EXPECT_EQ(reduced[0].bytes_read, kVocabulary * kHidden * 4);
  }
}

}  // namespace
}  // namespace headroom::step
