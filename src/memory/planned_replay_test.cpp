#include "memory/planned_replay.h"

#include <gtest/gtest.h>

#include "memory/generated/training_run.h"
#include "memory/packing/plan_synthesizer.h"
#include "memory/packing/validator.h"

namespace headroom::memory {
namespace {

MemoryTrace small_trace() {
  MemoryTrace trace;
  const auto make = [&](int64_t bytes, Category category) {
    BufferInfo info;
    info.requested_bytes = bytes;
    info.category = category;
    return trace.alloc(info, 0);
  };
  make(3 * kMiB, Category::parameter);
  const uint32_t first = make(700, Category::temporary);
  const uint32_t second = make(5 * kMiB, Category::activation);
  trace.free(first, 0);
  make(kMiB, Category::optimizer_state);
  trace.free(second, 0);
  return trace;
}

TEST(PlannedReplay, CountsWhatLives) {
  const ReplayResult result = replay_planned(small_trace(), {.timeline_points = 10});
  EXPECT_EQ(result.peak_allocated.bytes, 9 * kMiB);
  EXPECT_EQ(result.peak_allocated.event, 4u);
  EXPECT_EQ(result.peak_requested.bytes, 9 * kMiB);
  EXPECT_EQ(result.at_peak_allocated[static_cast<size_t>(Category::activation)], 5 * kMiB);
  EXPECT_EQ(result.statistics.allocated_bytes.current, 4 * kMiB);
  // The state that comes later has its place from the beginning on: 3 + 1 MiB, then 5 MiB and 1 KiB
  // at once, in pages of 2 MiB.
  EXPECT_EQ(result.peak_reserved.bytes, 10 * kMiB);
  ASSERT_FALSE(result.timeline.empty());
  for (const TimelinePoint& point : result.timeline) {
    EXPECT_EQ(point.reserved_bytes, 10 * kMiB);
  }
}

TEST(PlannedReplay, WhatIsNeverReleasedLivesThroughout) {
  const PackingProblem problem = packing_problem_of(small_trace());
  ASSERT_EQ(problem.requests.size(), 4u);
  EXPECT_EQ(problem.alignment, 512);
  EXPECT_EQ(problem.requests[0], (PackingRequest{0, 6, 3 * kMiB}));
  EXPECT_EQ(problem.requests[1], (PackingRequest{1, 3, 700}));
  EXPECT_EQ(problem.requests[2], (PackingRequest{2, 5, 5 * kMiB}));
  EXPECT_EQ(problem.requests[3], (PackingRequest{0, 6, kMiB}));
}

TEST(PlannedReplay, StreamsHaveRangesOfTheirOwn) {
  MemoryTrace trace;
  for (const uint32_t stream : {0U, 1U}) {
    BufferInfo info;
    info.requested_bytes = 2 * kMiB;
    info.stream = stream;
    trace.free(trace.alloc(info, 0), 0);
  }
  EXPECT_EQ(replay_planned(trace).peak_reserved.bytes, 4 * kMiB);
}

// As in replay_test: nobody's until the program knows that the other stream is past it.
TEST(PlannedReplay, WhatAnotherStreamUsesKeepsItsPlaceUntilItComesBack) {
  constexpr uint32_t kUser = 1;
  MemoryTrace trace;
  const uint32_t first = trace.alloc({.requested_bytes = 40 * kMiB}, 0);
  trace.stream_uses.push_back({first, kUser});
  trace.free(first, 0);
  trace.free(trace.alloc({.requested_bytes = 40 * kMiB}, 1), 1);
  trace.stream_progress.push_back({trace.events.size(), kUser, 1});
  trace.free(trace.alloc({.requested_bytes = 80 * kMiB}, 2), 2);
  ASSERT_TRUE(validate_trace(trace));
  EXPECT_EQ(packing_problem_of(trace).requests[first], (PackingRequest{0, 4, 40 * kMiB}));
  const ReplayResult late = replay_planned(trace);
  EXPECT_EQ(late.peak_reserved.bytes, 80 * kMiB);
  EXPECT_EQ(late.peak_active.bytes, 80 * kMiB);
  EXPECT_EQ(late.peak_active.event, 2u);
  EXPECT_EQ(late.peak_allocated.event, 4u);
  EXPECT_EQ(late.statistics.active_bytes.current, 0);
  // Where the program never learns of it the third has no place above it.
  trace.stream_progress.clear();
  EXPECT_EQ(replay_planned(trace).peak_reserved.bytes, 120 * kMiB);
}

TEST(PlannedReplay, MoreThanAnyAddressSpaceIsOutOfMemory) {
  MemoryTrace trace;
  for (int i = 0; i < 5; ++i) {
    BufferInfo info;
    info.requested_bytes = kMaxPackingBytes / 4;
    trace.free(trace.alloc(info, 0), 0);
  }
  EXPECT_TRUE(replay_planned(trace).out_of_memory);
}

TEST(PlannedReplay, OfNothingIsNothing) { EXPECT_EQ(replay_planned({}).peak_reserved.bytes, 0); }

// Generated runs: never below what lives, never above the caching allocator, near the bound.
TEST(PlannedReplay, IsNearTheBoundOnGeneratedRuns) {
  for (const bool recomputes : {false, true}) {
    const auto run = generated::generate_training_run(
        {.iterations = 2, .layers = 8, .micro_batches = 4, .stages = 2, .recomputes = recomputes});
    const ReplayResult planned = replay_planned(run.trace);
    DeviceMemory device;
    const ReplayResult cached = replay(run.trace, {}, device);
    const int64_t bound = packing_lower_bound(packing_problem_of(run.trace));
    EXPECT_EQ(planned.peak_requested.bytes, cached.peak_requested.bytes);
    EXPECT_GE(planned.peak_reserved.bytes, bound);
    EXPECT_LE(planned.peak_reserved.bytes, bound + bound / 500 + 2 * kMiB);
    EXPECT_LT(planned.peak_reserved.bytes, cached.peak_reserved.bytes);
    EXPECT_LE(planned.peak_allocated.bytes, cached.peak_allocated.bytes);
    const int64_t least = planned.peak_reserved.bytes;
    EXPECT_FALSE(replay_planned(run.trace, {.limit_bytes = least}).out_of_memory);
    EXPECT_TRUE(replay_planned(run.trace, {.limit_bytes = least - 1}).out_of_memory);
  }
}

}  // namespace
}  // namespace headroom::memory
