#include "memory/late_frees.h"

#include <gtest/gtest.h>

namespace headroom::memory {
namespace {

constexpr uint32_t kUser = 1;

uint32_t used_elsewhere(MemoryTrace& trace, uint32_t stream, int64_t bytes = 512) {
  const uint32_t buffer = trace.alloc({.requested_bytes = bytes}, 0);
  trace.stream_uses.push_back({buffer, stream});
  return buffer;
}

TEST(LateFrees, ComeBackInTheirOrderAsTheStreamGetsOn) {
  MemoryTrace trace;
  const uint32_t first = used_elsewhere(trace, kUser);
  const uint32_t second = used_elsewhere(trace, kUser);
  trace.free(second, 0);
  trace.free(first, 0);
  trace.stream_progress.push_back({trace.events.size(), kUser, 1});
  trace.alloc({.requested_bytes = 512}, 0);
  ASSERT_TRUE(validate_trace(trace));
  // The one that was freed last never comes back.
  EXPECT_EQ(late_frees(trace), (std::vector<LateFree>{{second, 4}, {first, 5}}));
}

TEST(LateFrees, AreNoneOfTheOwnStreamAndOfNothing) {
  MemoryTrace trace;
  trace.free(used_elsewhere(trace, 0), 0);
  trace.free(used_elsewhere(trace, kUser, 0), 0);
  EXPECT_TRUE(late_frees(trace).empty());
}

TEST(LateFrees, WaitForNoMoreThanWasFreed) {
  MemoryTrace trace;
  const uint32_t first = used_elsewhere(trace, kUser);
  trace.stream_progress.push_back({trace.events.size(), kUser, 3});
  trace.free(first, 0);
  EXPECT_EQ(late_frees(trace), (std::vector<LateFree>{{first, 2}}));
}

TEST(LateFrees, ComeBackWhereTheCacheIsEmptied) {
  MemoryTrace trace;
  const uint32_t first = used_elsewhere(trace, kUser);
  trace.free(first, 0);
  trace.empty_cache();
  trace.alloc({.requested_bytes = 512}, 0);
  EXPECT_EQ(late_frees(trace), (std::vector<LateFree>{{first, 2}}));
}

}  // namespace
}  // namespace headroom::memory
