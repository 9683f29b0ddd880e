#include "ops/process_heap.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/units.h"

namespace headroom::ops {
namespace {

constexpr int64_t kBlock = 20 * kMiB;

// What the last of some steps finds new, each of which makes so many blocks and lets them go: all
// at its end, or each before the next.
int64_t fresh_bytes(int64_t bytes, uint32_t count, bool at_the_end) {
  ProcessHeap heap;
  int64_t fresh = 0;
  for (int step = 0; step < 4; ++step) {
    fresh = 0;
    for (uint32_t block = 0; block < count; ++block) {
      fresh += heap.allocate(block, bytes);
      if (!at_the_end) heap.release(block);
    }
    for (uint32_t block = 0; block < count; ++block) heap.release(block);
  }
  return fresh;
}

TEST(ProcessHeap, BlocksBeyondTheThresholdAreNewEachTime) {
  EXPECT_EQ(fresh_bytes(40 * kMiB, 2, false), 80 * kMiB);
}

TEST(ProcessHeap, SmallerOnesAreKept) {
  EXPECT_EQ(fresh_bytes(kBlock, 3, false), 0);
  EXPECT_EQ(fresh_bytes(kMiB, 40, true), 0);
}

TEST(ProcessHeap, TheEndOfTheHeapGoesBackWhereMuchOfItIsFree) {
  EXPECT_EQ(fresh_bytes(kBlock, 3, true), 0);  // 60 MiB of 64
  const int64_t fresh = fresh_bytes(kBlock, 4, true);
  EXPECT_GT(fresh, 4 * kBlock - kMiB);
  EXPECT_LE(fresh, 4 * kBlock);
}

TEST(ProcessHeap, AFreeBlockBetweenOthersServesWhatFits) {
  ProcessHeap heap;
  for (uint32_t block = 0; block < 3; ++block) heap.allocate(block, 100'000);
  heap.release(1);
  EXPECT_EQ(heap.allocate(3, 50'000), 0);
  EXPECT_EQ(heap.allocate(4, 40'000), 0);
  heap.release(3);
  heap.release(4);  // the halves join
  EXPECT_EQ(heap.allocate(5, 100'000), 0);
  heap.release(77);  // not there
}

}  // namespace
}  // namespace headroom::ops
