// What must hold of any rank of FSDP, of both versions. That its gathers are PyTorch's, in order
// and to the byte, is held in tests/python/test_fsdp.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "step/tiny_llama.h"
#include "step/train_step.h"
#include "step/transform/lora.h"

namespace headroom::step {
namespace {

using memory::Category;

constexpr int64_t kLayers = 6;

model::Graph llama() { return tiny_llama({.layers = kLayers, .checkpointing = true}); }

TrainOptions options_of(int64_t ranks, int version = 1, bool inside_checkpoints = false) {
  TrainOptions options;
  options.checkpointing = CheckpointPolicy::full;
  options.checkpoint_kind = CheckpointKind::reentrant;
  FsdpOptions fsdp;
  fsdp.ranks = ranks;
  fsdp.version = version;
  fsdp.wrap.inside_checkpoints = inside_checkpoints;
  options.parallel = fsdp;
  return options;
}

StepTrace trace_of(const TrainOptions& options) { return trace_training(llama(), options).value(); }

// By category, what is allocated when the trace ends: between steps.
std::map<Category, int64_t> left_over(const StepTrace& trace) {
  std::map<Category, int64_t> left;
  for (const memory::MemoryEvent& event : trace.memory.events) {
    const memory::BufferInfo& buffer = trace.memory.buffers[event.buffer];
    const bool is_alloc = event.kind == memory::EventKind::alloc;
    left[buffer.category] += is_alloc ? buffer.requested_bytes : -buffer.requested_bytes;
  }
  return left;
}

// The most of a category at one time.
int64_t most_of(const StepTrace& trace, Category category) {
  int64_t now = 0, most = 0;
  for (const memory::MemoryEvent& event : trace.memory.events) {
    const memory::BufferInfo& buffer = trace.memory.buffers[event.buffer];
    if (buffer.category != category) continue;
    now +=
        event.kind == memory::EventKind::alloc ? buffer.requested_bytes : -buffer.requested_bytes;
    most = std::max(most, now);
  }
  return most;
}

// Sizes of the units of llama(), in bytes of bfloat16: no padding is needed.
constexpr int64_t kLayer =
    2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 112 + 2 * 64);  // q o, k v, mlp, norms
constexpr int64_t kRoot = 2 * (2 * 96 * 64 + 64);             // embedding, head, norm

class Fsdp : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Versions, Fsdp, ::testing::Values(1, 2));

TEST_P(Fsdp, ARankKeepsItsShareOfParametersAndStates) {
  for (const int64_t ranks : {1, 2, 4}) {
    auto left = left_over(trace_of(options_of(ranks, GetParam())));
    const int64_t share = (kLayers * kLayer + kRoot) / ranks;
    EXPECT_EQ(left[Category::gathered], 0) << ranks;
    EXPECT_GE(left[Category::parameter], share) << ranks;  // and the rotary frequencies
    EXPECT_LT(left[Category::parameter], share + 1024) << ranks;
    EXPECT_GE(left[Category::optimizer_state] + left[Category::lm_head_state], 2 * share) << ranks;
    EXPECT_LT(left[Category::optimizer_state] + left[Category::lm_head_state], 2 * share + 4096)
        << ranks;
  }
}

// ignored_modules: whole on each rank, in no unit, and averaged one by one.
TEST(Fsdp1, IgnoredAdaptersAreWholeAndAveragedOneByOne) {
  LoraOptions lora;
  lora.targets = {"q_proj", "v_proj"};
  lora.require_input_gradients = true;
  const model::Graph graph = apply_lora(llama(), lora).value();
  TrainOptions options = options_of(4);
  auto& wrap = std::get<FsdpOptions>(options.parallel).wrap;
  wrap.adapters = WrapAdapters::apart;
  const auto count = [&](op::OpKind kind) {
    const StepTrace trace = trace_training(graph, options).value();
    return std::ranges::count(trace.calls, kind, &OperatorCall::kind);
  };
  const auto gathers = count(op::OpKind::all_gather);
  EXPECT_EQ(count(op::OpKind::all_reduce), 0);
  wrap.adapters = WrapAdapters::ignored;
  constexpr int64_t kAdapters = 2 * 2 * kLayers;
  EXPECT_LE(count(op::OpKind::all_gather), gathers - 2 * 2 * kAdapters);  // in each of two steps
  EXPECT_EQ(count(op::OpKind::all_reduce), 2 * kAdapters);
}

// CPUOffload: shares are the host's, and what is gathered is as ever.
TEST_P(Fsdp, OffloadedSharesAreNotOnTheDevice) {
  TrainOptions options = options_of(4, GetParam());
  std::get<FsdpOptions>(options.parallel).offload = true;
  const StepTrace trace = trace_of(options);
  auto left = left_over(trace);
  EXPECT_LT(left[Category::parameter], 1024);  // the rotary frequencies
  EXPECT_EQ(left[Category::gradient], 0);
  EXPECT_EQ(left[Category::optimizer_state] + left[Category::lm_head_state], 0);
  EXPECT_EQ(most_of(trace, Category::gathered), kRoot + (GetParam() == 1 ? 2 : 3) * kLayer);
}

// FSDPParam.all_gather_inputs: each parameter's share comes and is cast before the next one's, and
// all of them are there until the buffer is filled.
TEST(Fsdp2, OffloadedSharesComeOneByOne) {
  TrainOptions options = options_of(4, 2);
  auto& fsdp = std::get<FsdpOptions>(options.parallel);
  fsdp.offload = true;
  fsdp.compute = op::DType::bf16;
  const StepTrace trace = trace_of(options);
  const auto& events = trace.memory.events;
  int gathers = 0;
  for (size_t i = 0; i < events.size(); ++i) {
    const memory::BufferInfo& buffer = trace.memory.buffers[events[i].buffer];
    const bool is_filled = events[i].kind == memory::EventKind::alloc && buffer.stream == 1 &&
                           buffer.category == Category::gathered &&
                           buffer.requested_bytes == kLayer;
    if (!is_filled) continue;
    ++gathers;
    int64_t held = 0, most = 0;
    for (size_t k = 0; k < i; ++k) {
      const memory::BufferInfo& share = trace.memory.buffers[events[k].buffer];
      if (share.stream != 1 || share.category != Category::temporary) continue;
      held += events[k].kind == memory::EventKind::alloc ? share.requested_bytes
                                                         : -share.requested_bytes;
      most = std::max(most, held);
    }
    EXPECT_EQ(held, kLayer / 4) << i;
    EXPECT_GT(most, held) << i;  // one in float32 beside those that are cast
  }
  EXPECT_GT(gathers, 2 * kLayers);
}

// FSDPParamGroup._all_reduce_state: what is reduced among replicas stays to the end of backward.
TEST(Fsdp2, OffloadedGradientsOfReplicasStayUntilBackwardIsDone) {
  TrainOptions options = options_of(4, 2);
  auto& fsdp = std::get<FsdpOptions>(options.parallel);
  fsdp.offload = true;
  const auto most = [&] { return most_of(trace_of(options), Category::gradient); };
  const int64_t alone = most();
  fsdp.replicas = 2;
  EXPECT_GE(most(), (kLayers * kLayer + kRoot) / 4);
  EXPECT_LT(alone, most());
  EXPECT_EQ(left_over(trace_of(options))[Category::gradient], 0);
}

// The host adds what it has, which the first version does not.
TEST(Fsdp2, OffloadedGradientsAddUpOnTheHost) {
  TrainOptions options = options_of(4, 2);
  std::get<FsdpOptions>(options.parallel).offload = true;
  options.accumulation = 3;
  EXPECT_EQ(left_over(trace_of(options))[Category::gradient], 0);
}

// _use_low_precision_shard: room for the low share comes first, what is cast comes and goes before
// the whole has room.
TEST(Fsdp1, AnOffloadedShareGoesBeforeTheWholeComes) {
  TrainOptions options = options_of(4);
  auto& fsdp = std::get<FsdpOptions>(options.parallel);
  fsdp.offload = true;
  fsdp.compute = op::DType::bf16;
  const StepTrace trace = trace_of(options);
  const int64_t low = kLayer / 4;
  int gathers = 0;
  const auto& events = trace.memory.events;
  const auto is = [&](size_t at, memory::EventKind kind, int64_t bytes) {
    return events[at].kind == kind &&
           trace.memory.buffers[events[at].buffer].requested_bytes == bytes;
  };
  for (size_t i = 3; i + 1 < events.size(); ++i) {
    if (trace.memory.buffers[events[i].buffer].category != Category::gathered) continue;
    if (!is(i, memory::EventKind::alloc, kLayer)) continue;
    ++gathers;
    EXPECT_TRUE(is(i - 3, memory::EventKind::alloc, low)) << i;
    EXPECT_TRUE(is(i - 2, memory::EventKind::alloc, 2 * low)) << i;
    EXPECT_TRUE(is(i - 1, memory::EventKind::free, 2 * low)) << i;
    EXPECT_TRUE(is(i + 1, memory::EventKind::free, low)) << i;
  }
  EXPECT_GT(gathers, 2 * kLayers);
}

// The host waits for all but two of the units that were let go whenever it gathers one; the step's
// last ones nobody waits for.
TEST(Fsdp1, WhatWasGatheredComesBackLate) {
  const StepTrace trace = trace_of(options_of(2));
  ASSERT_TRUE(memory::validate_trace(trace.memory));
  size_t gathered = 0;
  for (const memory::BufferInfo& buffer : trace.memory.buffers) {
    gathered += buffer.category == Category::gathered ? 1 : 0;
  }
  EXPECT_EQ(trace.memory.stream_uses.size(), gathered);
  const size_t on_their_way = gathered - trace.memory.stream_progress.size();
  EXPECT_GE(on_their_way, 2U);
  EXPECT_LE(on_their_way, 4U);
  EXPECT_TRUE(trace_of(options_of(2, 2)).memory.stream_uses.empty());
}

TEST(Fsdp1, GathersTheRootAndTwoLayersAtMost) {
  EXPECT_EQ(most_of(trace_of(options_of(4)), Category::gathered), kRoot + 2 * kLayer);
}

// Hooks run again within the second run, so nobody knows yet which layer backward needs next.
TEST(Fsdp1, GathersNothingAheadInsideReentrantCheckpoints) {
  EXPECT_EQ(most_of(trace_of(options_of(4, 1, true)), Category::gathered), kRoot + kLayer);
}

TEST(Fsdp1, MixedPrecisionGathersHalfOfWhatTheShardsWouldMake) {
  TrainOptions options = options_of(4);
  options.weights = op::DType::f32;
  std::get<FsdpOptions>(options.parallel).weights = op::DType::f32;
  EXPECT_EQ(most_of(trace_of(options), Category::gathered), 2 * (kRoot + 2 * kLayer));
  std::get<FsdpOptions>(options.parallel).compute = op::DType::bf16;
  const StepTrace trace = trace_of(options);
  EXPECT_EQ(most_of(trace, Category::gathered), kRoot + 2 * kLayer);
  EXPECT_GE(left_over(trace)[Category::parameter], 2 * (kLayers * kLayer + kRoot) / 4);
}

TEST_P(Fsdp, AccumulationKeepsOneShareOfGradients) {
  const TrainOptions once = options_of(2, GetParam());
  TrainOptions twice = once;
  twice.accumulation = 2;
  const auto shares = [](const StepTrace& trace) {
    int64_t bytes = 0;
    for (const memory::BufferInfo& buffer : trace.memory.buffers) {
      if (buffer.category == Category::gradient && buffer.stream != 0) {
        bytes += buffer.requested_bytes;
      }
    }
    return bytes;
  };
  EXPECT_EQ(shares(trace_of(twice)), 2 * shares(trace_of(once)));
  // On top of what is kept, one unit's gradient and its share.
  EXPECT_LE(most_of(trace_of(twice), Category::gradient),
            most_of(trace_of(once), Category::gradient) + kLayer + kLayer / 2);
}

// Gathered into one buffer, and copied out of it while the layer before it is still there.
TEST(Fsdp2, GathersTheRootTwoLayersAndABufferAtMost) {
  EXPECT_EQ(most_of(trace_of(options_of(4, 2)), Category::gathered), kRoot + 3 * kLayer);
}

TEST(Fsdp1, GatheringAndReducingHaveStreamsOfTheirOwn) {
  std::map<Category, uint32_t> streams;
  for (const memory::BufferInfo& buffer : trace_of(options_of(2)).memory.buffers) {
    if (buffer.stream != 0) streams[buffer.category] = buffer.stream;
  }
  EXPECT_EQ(streams,
            (std::map<Category, uint32_t>{{Category::gradient, 2}, {Category::gathered, 1}}));
}

}  // namespace
}  // namespace headroom::step
