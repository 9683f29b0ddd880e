#include "memory/replay.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <numeric>

#include "memory/random_program.h"

namespace headroom::memory {
namespace {

int64_t sum(const CategoryBytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

TEST(Replay, EmptiesTheCacheWhereTheProgramDid) {
  MemoryTrace trace;
  trace.free(trace.alloc({.requested_bytes = 40 * kMiB}, 0), 0);
  trace.empty_cache();
  trace.alloc({.requested_bytes = 60 * kMiB}, 1);
  trace.empty_cache();
  ASSERT_TRUE(validate_trace(trace));
  DeviceMemory device;
  EXPECT_EQ(replay(trace, {}, device, {}).peak_reserved.bytes, 60 * kMiB);
  trace.cache_emptied = {2, 1};
  EXPECT_FALSE(validate_trace(trace));
  trace.cache_emptied = {4};
  EXPECT_FALSE(validate_trace(trace));
}

// A block that another stream used is nobody's until the program knows that the stream is past it;
// where memory would run out, it is waited for.
TEST(Replay, BlocksThatAnotherStreamUsedComeBackLate) {
  constexpr uint32_t kUser = 1;
  MemoryTrace trace;
  const uint32_t first = trace.alloc({.requested_bytes = 40 * kMiB}, 0);
  trace.stream_uses.push_back({first, kUser});
  trace.free(first, 0);
  trace.free(trace.alloc({.requested_bytes = 40 * kMiB}, 1), 1);
  trace.stream_progress.push_back({trace.events.size(), kUser, 1});
  trace.alloc({.requested_bytes = 40 * kMiB}, 2);
  trace.alloc({.requested_bytes = 40 * kMiB}, 3);
  ASSERT_TRUE(validate_trace(trace));
  DeviceMemory device;
  const ReplayResult late = replay(trace, {}, device, {});
  EXPECT_EQ(late.peak_reserved.bytes, 80 * kMiB);
  EXPECT_EQ(late.peak_allocated.bytes, 80 * kMiB);
  trace.events.resize(trace.events.size() - 2);
  EXPECT_EQ(replay(trace, {}, device, {}).peak_reserved.bytes, 80 * kMiB);
  EXPECT_EQ(replay(trace, {}, device, {}).peak_allocated.bytes, 40 * kMiB);
  DeviceMemory small(Bytes(50 * kMiB), Bytes(50 * kMiB));
  EXPECT_FALSE(replay(trace, {}, small, {}).out_of_memory);
  trace.stream_uses.front().buffer = 9;
  EXPECT_FALSE(validate_trace(trace));
}

TEST(Replay, FindsPeaksAndWhatTheyAreMadeOf) {
  MemoryTrace trace;
  trace.alloc({.requested_bytes = 30 * kMiB, .category = Category::parameter}, 0);
  const uint32_t a =
      trace.alloc({.requested_bytes = 11 * kMiB, .category = Category::activation}, 1);
  const uint32_t empty = trace.alloc({.requested_bytes = 0}, 1);
  const uint32_t b = trace.alloc({.requested_bytes = 100, .category = Category::loss}, 2);  // peak
  trace.free(a, 3);
  trace.free(empty, 3);
  trace.free(b, 4);
  ASSERT_TRUE(validate_trace(trace));
  DeviceMemory device;
  const ReplayResult result = replay(trace, {}, device, {.timeline_points = 100});
  // 11 MiB opens a 12 MiB segment whose remainder of 1 MiB is not split off.
  EXPECT_EQ(result.peak_allocated.bytes, 42 * kMiB + 512);
  EXPECT_EQ(result.peak_allocated.event, 3u);
  EXPECT_EQ(result.peak_requested.bytes, 41 * kMiB + 100);
  EXPECT_EQ(result.peak_reserved.bytes, 44 * kMiB);
  EXPECT_EQ(result.peak_reserved.event, 3u);
  EXPECT_EQ(sum(result.at_peak_allocated), result.peak_allocated.bytes);
  EXPECT_EQ(result.at_peak_allocated[static_cast<size_t>(Category::loss)], 512);
  EXPECT_EQ(result.statistics.allocated_bytes.current, 30 * kMiB);
  EXPECT_EQ(result.timeline.size(), trace.events.size());
  EXPECT_EQ(sum(result.timeline[3].allocated_bytes), result.peak_allocated.bytes);
  EXPECT_EQ(result.timeline[6].reserved_bytes, 44 * kMiB);
  EXPECT_FALSE(result.out_of_memory);
}

TEST(Replay, KeepsThePeakInADownsampledTimeline) {
  MemoryTrace trace;
  for (uint32_t i = 0; i < 1000; ++i) {
    const uint32_t buffer = trace.alloc({.requested_bytes = i == 617 ? 50 * kMiB : 512}, i);
    trace.free(buffer, i);
  }
  DeviceMemory device;
  const ReplayResult result = replay(trace, {}, device, {.timeline_points = 10});
  ASSERT_EQ(result.timeline.size(), 10u);
  int64_t highest = 0;
  for (const TimelinePoint& point : result.timeline) {
    highest = std::max(highest, sum(point.allocated_bytes));
  }
  EXPECT_EQ(highest, 50 * kMiB);
  EXPECT_EQ(result.peak_allocated.event, 1234u);
}

TEST(Replay, StopsWhereMemoryRunsOut) {
  MemoryTrace trace;
  trace.alloc({.requested_bytes = 60 * kMiB}, 0);
  trace.alloc({.requested_bytes = 60 * kMiB}, 1);
  trace.alloc({.requested_bytes = 60 * kMiB}, 2);
  DeviceMemory device(Bytes{100 * kMiB}, Bytes{200 * kMiB});
  const ReplayResult result = replay(trace, {}, device, {.timeline_points = 10});
  ASSERT_TRUE(result.out_of_memory);
  EXPECT_EQ(result.out_of_memory->event, 1u);
  EXPECT_EQ(result.out_of_memory->details.device_free_bytes, 40 * kMiB);
  EXPECT_EQ(result.out_of_memory->details.requested_bytes, 60 * kMiB);
  EXPECT_EQ(result.peak_allocated.bytes, 60 * kMiB);
  EXPECT_EQ(result.timeline.size(), 1u);
}

// What predictions conclude from: a device that a replay never filled might as well be smaller.
TEST(Replay, ALimitThatIsNotMetChangesNothing) {
  rc::check([] {
    MemoryTrace trace;
    std::vector<uint32_t> live;
    for (const contract::Step& step : *contract::any_program(200)) {
      if (step.kind == contract::Step::Kind::allocate) {
        live.push_back(trace.alloc({.requested_bytes = step.bytes, .stream = step.stream}, 0));
      } else if (!live.empty()) {
        const size_t at = step.pick % live.size();
        trace.free(live[at], 0);
        live.erase(live.begin() + static_cast<ptrdiff_t>(at));
      }
    }
    DeviceMemory endless;
    const ReplayResult free = replay(trace, {}, endless);
    const Bytes peak(free.peak_reserved.bytes);
    DeviceMemory just_enough(peak, peak);
    const ReplayResult limited = replay(trace, {}, just_enough);
    RC_ASSERT(!limited.out_of_memory);
    RC_ASSERT(limited.statistics.alloc_retries == 0);
    RC_ASSERT(limited.peak_reserved.bytes == free.peak_reserved.bytes);
    RC_ASSERT(limited.peak_allocated.bytes == free.peak_allocated.bytes);
    RC_ASSERT(limited.statistics.allocated_bytes.current ==
              free.statistics.allocated_bytes.current);
  });
}

TEST(Replay, OfNothing) {
  DeviceMemory device;
  const ReplayResult result = replay({}, {}, device, {.timeline_points = 5});
  EXPECT_EQ(result.peak_allocated.bytes, 0);
  EXPECT_TRUE(result.timeline.empty());
}

}  // namespace
}  // namespace headroom::memory
