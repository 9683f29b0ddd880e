#include "timing/step_time.h"

#include <gtest/gtest.h>

#include <cmath>

#include "device/catalogue.h"

namespace headroom::timing {
namespace {

using op::OpKind;
using step::OperatorCall;
using step::Phase;

constexpr int64_t kBlock = 256 * kMiB;

OperatorCall addition(Phase phase, int64_t bytes, uint16_t awaits = 0) {
  return {.kind = OpKind::add,
          .phase = phase,
          .awaits = awaits,
          .bytes_read = bytes,
          .bytes_written = bytes};
}

OperatorCall collective(OpKind kind, Phase phase, int64_t bytes_in, int64_t bytes_out,
                        uint16_t awaits = 0) {
  return {.kind = kind,
          .phase = phase,
          .awaits = awaits,
          .bytes_read = bytes_in,
          .bytes_written = bytes_out};
}

step::StepTrace trace_of(std::vector<OperatorCall> calls) {
  step::StepTrace trace;
  trace.calls = std::move(calls);
  trace.phases = {{Phase::forward, 1, 0, 0}};
  return trace;
}

class StepTimeTest : public testing::Test {
 protected:
  StepTime time_of(std::vector<OperatorCall> calls, Division division = {8, 1},
                   Cluster cluster = {}) {
    const StepTimeQuestion question{device_, {.tokens = 4096, .sequence = 4096}, cluster, division};
    const auto time = timing::time_of(trace_of(std::move(calls)), question, model_);
    EXPECT_TRUE(time) << time.error().to_string();
    return time ? *time : StepTime{};
  }
  double seconds_of_addition(int64_t bytes) {
    return time_of({addition(Phase::forward, bytes)}).seconds;
  }
  double seconds_of_reduction(int64_t bytes) {
    return time_of({collective(OpKind::all_reduce, Phase::backward, bytes, bytes)}).seconds;
  }

  device::Device device_ = *device::DeviceCatalogue::built_in().find("a100-sxm-80gb");
  TimingModel model_ = TimingModel::built_in();
};

// Learned as a multiple of another pass over as many bytes.
TEST_F(StepTimeTest, UnpackingWeightsTakesLongerThanCopyingThem) {
  OperatorCall unpacking = addition(Phase::forward, kBlock);
  unpacking.kind = OpKind::dequantize;
  const InStep* step = model_.in_step("eager-training");
  ASSERT_GT(step->dequantize_ratio, 1);
  EXPECT_NEAR(time_of({unpacking}).seconds / seconds_of_addition(kBlock), step->dequantize_ratio,
              1e-9);
}

// A unit of FSDP1's tells that it is FSDP1: elsewhere the host is taken to be ahead.
TEST_F(StepTimeTest, TheHostShowsUnderFsdp1Alone) {
  constexpr int64_t kSmall = 512;
  std::vector<OperatorCall> calls(1000, addition(Phase::forward, kSmall));
  const StepTime ahead = time_of(calls);
  EXPECT_EQ(ahead.host_seconds, 0);
  calls[500].let_go = 1;
  const StepTime late = time_of(calls);
  EXPECT_GT(late.host_seconds, 0);
  EXPECT_NEAR(late.seconds, ahead.seconds + late.host_seconds, 1e-12);
  EXPECT_GE(late.seconds, 1000 * model_.in_step("eager-training")->host_launch_seconds);
  EXPECT_EQ(late.compute_seconds, ahead.compute_seconds);
  // Another host may take half or twice as long.
  EXPECT_LT(late.seconds_low, 0.55 * late.seconds);
  EXPECT_GT(late.seconds_high, 1.9 * late.seconds);
}

// Whole steps taught Megatron-LM's residual: its interval is theirs, and the host shows in them.
TEST_F(StepTimeTest, WholeStepsHaveTheirOwnInterval) {
  ASSERT_TRUE(model_.merge(R"({"schema": "headroom.timing/1", "laws": [], "steps": [
      {"name": "megatron-training", "source": "a test", "devices": ["a100-sxm-80gb"], "ratio": 1.5,
       "half_width_log": 0.25, "half_width_log_elsewhere": 0.5, "median_error_pct": 9,
       "host_launch_seconds": 0.001, "whole_steps": {"learned": 4, "aside": 3, "inside": 2}}]})",
                           "steps.json"));
  constexpr int64_t kSmall = 512;
  constexpr int64_t kCalls = 1000;
  const step::StepTrace trace =
      trace_of(std::vector<OperatorCall>(kCalls, addition(Phase::forward, kSmall)));
  const auto of = [&](const device::Device& device) {
    StepTimeQuestion question{device, {}, {}, {}};
    question.residual = kMegatronTraining;
    return *timing::time_of(trace, question, model_);
  };
  const StepTime time = of(device_);
  EXPECT_NEAR(time.seconds, 0.001 * kCalls, 0.01);
  EXPECT_GT(time.host_seconds, 0.9 * time.seconds);
  // Another host may take half or twice as long.
  EXPECT_NEAR(time.seconds_low / time.seconds, std::exp(-0.25) / 2, 0.01);
  EXPECT_NEAR(time.seconds_high / time.seconds, std::exp(0.25) * 2, 0.01);
  const StepTime elsewhere = of(*device::DeviceCatalogue::built_in().find("h100-sxm-80gb"));
  EXPECT_NEAR(elsewhere.seconds_high / elsewhere.seconds, std::exp(0.5) * 2, 0.01);
  // Where it is ahead, that changes nothing.
  constexpr int64_t kLarge = 4096 * kBlock;
  const auto large = timing::time_of(trace_of({addition(Phase::forward, kLarge)}),
                                     {device_, {}, {}, {}, kMegatronTraining}, model_);
  ASSERT_TRUE(large);
  EXPECT_NEAR(large->seconds_high / large->seconds, std::exp(0.25), 0.01);
  EXPECT_NEAR(large->seconds_low / large->seconds, std::exp(-0.25), 0.01);
}

TEST_F(StepTimeTest, LaunchesFollowOneAnother) {
  const double one = seconds_of_addition(kBlock);
  const StepTime three =
      time_of({addition(Phase::forward, kBlock), addition(Phase::forward, kBlock),
               addition(Phase::backward, kBlock)});
  EXPECT_NEAR(three.seconds, 3 * one, 1e-9);
  EXPECT_EQ(three.launches, 3);
  EXPECT_EQ(three.collectives, 0);
  EXPECT_LT(three.seconds_low, three.seconds);
  EXPECT_GT(three.seconds_high, three.seconds);
  // 512 MiB at 2.039 TB/s; within a step kernels take longer than the datasheet's bandwidth allows.
  EXPECT_NEAR(one, 2.0 * kBlock / 2.039e12 * 1.25, 0.15 * one);
}

TEST_F(StepTimeTest, WhatIsReducedBesideIsHiddenUntilItIsAwaited) {
  const double add = seconds_of_addition(kBlock);
  const double reduce = seconds_of_reduction(kBlock);
  ASSERT_GT(reduce, add);
  // Reduced while one addition runs; then the next has to wait for it.
  const StepTime time =
      time_of({collective(OpKind::all_reduce, Phase::backward, kBlock, kBlock),
               addition(Phase::backward, kBlock), addition(Phase::optimizer, kBlock, 1)});
  EXPECT_NEAR(time.seconds, reduce + add, 1e-9);
  EXPECT_NEAR(time.exposed_seconds, reduce - add, 1e-9);
  EXPECT_NEAR(time.communication_seconds, reduce, 1e-9);
  // What a reduction reads has to be there first.
  const StepTime after = time_of({addition(Phase::backward, kBlock),
                                  collective(OpKind::all_reduce, Phase::backward, kBlock, kBlock)});
  EXPECT_NEAR(after.seconds, add + reduce, 1e-9);
}

// As FSDP's next unit: gathered while this one computes, though it is issued only behind it.
TEST_F(StepTimeTest, GathersRunAheadUntilTheBufferBeforeIsTaken) {
  const auto gather = [&](uint8_t awaits = 0) {
    return collective(OpKind::all_gather, Phase::forward, kBlock / 8, kBlock, awaits);
  };
  const double one = time_of({gather()}).seconds;
  EXPECT_NEAR(one, seconds_of_reduction(kBlock) / 2, 1e-9);
  const int64_t large = 16 * kBlock;
  const double add = seconds_of_addition(large);
  ASSERT_GT(add, one);
  const StepTime time = time_of(
      {gather(), addition(Phase::forward, large, 1), gather(), addition(Phase::forward, large, 1)});
  EXPECT_NEAR(time.seconds, one + 2 * add, 1e-9);
  EXPECT_NEAR(time.exposed_seconds, one, 1e-9);
  // One of the optimizer's gathers what the step has just made.
  const StepTime updated =
      time_of({addition(Phase::optimizer, kBlock),
               collective(OpKind::all_gather, Phase::optimizer, kBlock / 8, kBlock)});
  EXPECT_NEAR(updated.seconds, seconds_of_addition(kBlock) + one, 1e-9);
}

TEST_F(StepTimeTest, ANetworkIsSlowerAndSharedByGroups) {
  const std::vector<OperatorCall> reduction{
      collective(OpKind::all_reduce, Phase::backward, kBlock, kBlock)};
  const double within = time_of(reduction, {16, 1}, {16, {}}).seconds;
  const double across = time_of(reduction, {16, 1}, {8, BytesPerSecond{50e9}}).seconds;
  const double slow = time_of(reduction, {16, 1}, {8, BytesPerSecond{5e9}}).seconds;
  EXPECT_LT(within, slow);
  EXPECT_LE(within, across);
  EXPECT_GT(slow, 5 * across);
  // Eight groups of two, one a device, share what one group of sixteen has for itself.
  const double replicas = time_of(reduction, {8, 2}, {8, BytesPerSecond{5e9}}).seconds;
  EXPECT_GT(replicas, 2 * slow);
}

OperatorCall of_tensor_group(int64_t bytes, uint16_t awaits = 0) {
  OperatorCall call = collective(OpKind::all_reduce, Phase::backward, bytes, bytes, awaits);
  call.peers = step::Peers::tensor;
  return call;
}

// Ranks that share products are neighbours; those that share the state are apart.
TEST_F(StepTimeTest, TensorParallelRanksSendWithinTheirNode) {
  const Cluster cluster{8, BytesPerSecond{5e9}};
  const Division division{.ranks = 2, .replicas = 1, .tensor_ranks = 8};
  const double within = time_of({of_tensor_group(kBlock)}, division, cluster).seconds;
  const double across =
      time_of({collective(OpKind::all_reduce, Phase::backward, kBlock, kBlock)}, division, cluster)
          .seconds;
  EXPECT_NEAR(within, seconds_of_reduction(kBlock), 1e-9);
  EXPECT_GT(across, 5 * within);
}

// What all send to all is as much as a ring gathers; out of a node goes what is for others there.
TEST_F(StepTimeTest, RowsOfExpertsGoToEveryRank) {
  OperatorCall call = collective(OpKind::all_to_all, Phase::forward, kBlock, kBlock);
  call.peers = step::Peers::expert;
  const Division division{.ranks = 16, .expert_ranks = 16};
  const OperatorCall gather = collective(OpKind::all_gather, Phase::forward, kBlock / 16, kBlock);
  const Cluster one_node{16, {}};
  EXPECT_NEAR(time_of({call}, division, one_node).seconds,
              time_of({gather}, division, one_node).seconds, 1e-9);
  // Half of it leaves the node, by each device's own way.
  const Cluster two_nodes{8, BytesPerSecond{5e9}};
  const double by_bytes = 0.5 * static_cast<double>(kBlock) / 5e9;
  const double seconds = time_of({call}, division, two_nodes).seconds;
  EXPECT_GT(seconds, by_bytes);
  EXPECT_LT(seconds, 2 * by_bytes);
  const step::StepTrace trace = trace_of({call});
  EXPECT_DOUBLE_EQ(sent_bytes(trace, division), 15.0 / 16 * kBlock);
}

// Each kind of peers has a stream of its own: neither waits for the other's turn.
TEST_F(StepTimeTest, CollectivesAmongOtherPeersRunBesideEachOther) {
  OperatorCall data = collective(OpKind::all_reduce, Phase::backward, kBlock, kBlock);
  data.peers = step::Peers::data;
  const Division division{.ranks = 8, .replicas = 1, .tensor_ranks = 8};
  const Cluster cluster{64, {}};
  const double one = time_of({data}, division, cluster).seconds;
  EXPECT_NEAR(time_of({data, of_tensor_group(kBlock)}, division, cluster).seconds, one, 1e-9);
  EXPECT_NEAR(time_of({data, data}, division, cluster).seconds, 2 * one, 1e-9);
}

OperatorCall sent_around(int64_t bytes, uint16_t awaits = 0) {
  OperatorCall call = collective(OpKind::send_receive, Phase::forward, bytes, bytes, awaits);
  call.peers = step::Peers::context;
  return call;
}

// Two neighbours are within a machine; the ring of eight that they are of is not.
TEST_F(StepTimeTest, ARingIsAsSlowAsItsSlowestLink) {
  const Cluster cluster{8, BytesPerSecond{5e9}};
  const Division within{.tensor_ranks = 1, .context_ranks = 8};
  const Division beyond{.tensor_ranks = 2, .context_ranks = 8};
  const double fast = time_of({sent_around(kBlock)}, within, cluster).seconds;
  const double slow = time_of({sent_around(kBlock)}, beyond, cluster).seconds;
  EXPECT_LT(fast, 0.2 * slow);
  EXPECT_GE(slow, kBlock / 5e9);  // through the card of one device
  EXPECT_LT(slow, 2.0 * kBlock / 5e9);
}

TEST_F(StepTimeTest, WhatWasSentIsWaitedForWhereItIsUsed) {
  const Division division{.context_ranks = 8};
  const double send = time_of({sent_around(kBlock)}, division).seconds;
  const double add = seconds_of_addition(kBlock / 4);
  ASSERT_GT(send, add);
  const StepTime time = time_of({sent_around(kBlock), addition(Phase::forward, kBlock / 4),
                                 addition(Phase::forward, kBlock / 4, 1)},
                                division);
  EXPECT_NEAR(time.seconds, send + add, 1e-9);
}

// What a collective says of its group goes before what the division says of its peers.
TEST_F(StepTimeTest, ACallMaySayItsGroup) {
  const Cluster cluster{8, BytesPerSecond{5e9}};
  OperatorCall experts = collective(OpKind::all_reduce, Phase::backward, kBlock, kBlock);
  experts.peers = step::Peers::data;
  experts.group = {2, 8};
  const double apart = time_of({experts}, {.ranks = 16}, cluster).seconds;
  experts.group = {2, 1};
  const double beside = time_of({experts}, {.ranks = 16}, cluster).seconds;
  EXPECT_GT(apart, 5 * beside);
  EXPECT_DOUBLE_EQ(sent_bytes(trace_of({experts}), {.ranks = 16}), kBlock);
}

// Those among other peers, too, whichever began last.
TEST_F(StepTimeTest, WhoWaitsForAllWaitsForTheLongest) {
  const Division division{.ranks = 8, .tensor_ranks = 2};
  OperatorCall data = collective(OpKind::all_reduce, Phase::backward, kBlock, kBlock);
  data.peers = step::Peers::data;
  const double reduce = time_of({data}, division).seconds;
  const double add = seconds_of_addition(kBlock);
  const auto step = [&](uint16_t awaits) {
    return time_of({data, of_tensor_group(kBlock / 64), addition(Phase::optimizer, kBlock, awaits)},
                   division)
        .seconds;
  };
  EXPECT_NEAR(step(step::kAwaitsAll), reduce + add, 1e-9);
  EXPECT_LT(step(1), reduce + add);
}

// FlashAttention-2's kernels have none of Hopper's wider instructions.
TEST_F(StepTimeTest, FlashAttentionHasACeilingOnHopper) {
  constexpr double kFlops = 4e13;
  const auto seconds = [&](const char* device, bool before_hopper) {
    device_ = *device::DeviceCatalogue::built_in().find(device);
    OperatorCall attention = addition(Phase::forward, kBlock);
    attention.kind = OpKind::sdpa;
    attention.element_bytes = 2;
    attention.flops = kFlops;
    attention.rows = attention.keys = 32'768;
    attention.before_hopper = before_hopper;
    return time_of({attention}).seconds;
  };
  EXPECT_DOUBLE_EQ(seconds("a100-sxm-80gb", true), seconds("a100-sxm-80gb", false));
  EXPECT_GT(seconds("h100-sxm-80gb", true), 1.1 * seconds("h100-sxm-80gb", false));
  EXPECT_GE(seconds("h100-sxm-80gb", true), kFlops / 335e12);
}

TEST_F(StepTimeTest, WithoutALinkDevicesSendOverPcie) {
  device_ = *device::DeviceCatalogue::built_in().find("l40s-48gb");
  const double seconds = seconds_of_reduction(kBlock);
  const double peak = 2.0 * 7 / 8 * kBlock / device_.pcie.value.value;
  EXPECT_GT(seconds, peak);
  EXPECT_LT(seconds, 5 * peak);
}

TEST_F(StepTimeTest, ABridgeJoinsTwo) {
  device_ = *device::DeviceCatalogue::built_in().find("rtx-3090-24gb");
  const std::vector<OperatorCall> gather{
      collective(OpKind::all_gather, Phase::forward, kBlock / 2, kBlock)};
  EXPECT_GT(time_of(gather, {4, 1}).seconds, 2.5 * time_of(gather, {2, 1}).seconds);
}

TEST_F(StepTimeTest, OfADeviceThatNothingWasLearnedOnTheIntervalIsWider) {
  const StepTime known = time_of({addition(Phase::forward, kBlock)});
  device_ = *device::DeviceCatalogue::built_in().find("h100-sxm-80gb");
  const StepTime other = time_of({addition(Phase::forward, kBlock)});
  EXPECT_GT(std::log(other.seconds_high / other.seconds),
            std::log(known.seconds_high / known.seconds));
}

TEST_F(StepTimeTest, WhatIsNotKnownOfADeviceIsAnError) {
  device_.bandwidth = {};
  const StepTimeQuestion question{device_, {}, {}, {}};
  const auto time = timing::time_of(trace_of({addition(Phase::forward, kBlock)}), question, model_);
  ASSERT_FALSE(time);
  EXPECT_NE(time.error().message.find("bandwidth"), std::string::npos);
}

TEST_F(StepTimeTest, OnlyTheLastStepCounts) {
  step::StepTrace trace =
      trace_of({addition(Phase::forward, 64 * kBlock), addition(Phase::forward, kBlock)});
  trace.phases.push_back({Phase::forward, 2, 0, 1});
  const StepTimeQuestion question{device_, {.tokens = 4096, .sequence = 4096}, {}, {}};
  const auto time = timing::time_of(trace, question, model_);
  ASSERT_TRUE(time);
  EXPECT_NEAR(time->seconds, seconds_of_addition(kBlock), 1e-9);
}

TEST(SentBytes, RingsOfTheirOwnSize) {
  const step::StepTrace trace =
      trace_of({collective(OpKind::all_gather, Phase::forward, 100, 400),
                collective(OpKind::reduce_scatter, Phase::backward, 400, 100),
                collective(OpKind::all_reduce, Phase::backward, 100, 100)});
  EXPECT_DOUBLE_EQ(sent_bytes(trace, {4, 2}), 300 + 300 + 2 * 0.5 * 100);
  EXPECT_DOUBLE_EQ(sent_bytes(trace, {4, 1}), 300 + 300 + 2 * 0.75 * 100);
}

}  // namespace
}  // namespace headroom::timing
