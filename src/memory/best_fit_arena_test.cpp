#include "memory/best_fit_arena.h"

#include <gtest/gtest.h>

#include "base/units.h"

namespace headroom::memory {
namespace {

TEST(BestFitArena, TakesTheSmallestHoleThatFits) {
  BestFitArena arena(kGiB);
  std::vector<BestFitArena::Block> blocks;
  for (const int64_t size : {8, 1, 4, 1, 2, 1}) {
    const auto block = arena.allocate(size * kMiB, 0);
    ASSERT_TRUE(block);
    blocks.push_back(*block);
  }
  for (const size_t i : {0, 2, 4}) arena.free(blocks[i].handle);
  const auto placed = arena.allocate(3 * kMiB, 0);
  ASSERT_TRUE(placed);
  EXPECT_EQ(placed->address, blocks[2].address);
  EXPECT_EQ(arena.reserved_bytes(), 18 * kMiB);  // 17 MiB in pages of 2
}

TEST(BestFitArena, NeighboursJoinAndStreamsDoNotShare) {
  BestFitArena arena(kGiB);
  const auto a = arena.allocate(2 * kMiB, 0);
  const auto b = arena.allocate(2 * kMiB, 0);
  arena.free(a->handle);
  arena.free(b->handle);
  EXPECT_EQ(arena.allocate(4 * kMiB, 0)->address, a->address);
  EXPECT_EQ(arena.reserved_bytes(), 4 * kMiB);
  ASSERT_TRUE(arena.allocate(4 * kMiB, 1));
  EXPECT_EQ(arena.reserved_bytes(), 8 * kMiB);
}

TEST(BestFitArena, ABudgetIsKept) {
  BestFitArena arena(4 * kMiB);
  ASSERT_TRUE(arena.allocate(3 * kMiB, 0));
  EXPECT_FALSE(arena.allocate(3 * kMiB, 0));
  EXPECT_TRUE(arena.allocate(kMiB, 0));
}

TEST(BestFitArena, PeakOfATrace) {
  MemoryTrace trace;
  BufferInfo info;
  info.requested_bytes = 10 * kMiB;
  const uint32_t first = trace.alloc(info, 0);
  trace.free(first, 0);
  info.requested_bytes = 6 * kMiB;
  trace.alloc(info, 0);
  trace.alloc(info, 0);
  info.requested_bytes = 0;
  const uint32_t nothing = trace.alloc(info, 0);
  trace.free(nothing, 0);
  EXPECT_EQ(best_fit_peak_bytes(trace), 12 * kMiB);
}

}  // namespace
}  // namespace headroom::memory
