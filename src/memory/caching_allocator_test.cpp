#include "memory/caching_allocator.h"

#include <gtest/gtest.h>

namespace headroom::memory {
namespace {

AllocatorSettings settings_of(std::string_view text) {
  auto result = parse_allocator_config(text);
  EXPECT_TRUE(result) << text;
  return result ? *result : AllocatorSettings{};
}

// An allocator whose invariants are checked after every call.
class Harness {
 public:
  explicit Harness(std::string_view settings = "", DeviceMemory device = DeviceMemory())
      : device_(device), allocator_(settings_of(settings), device_) {}

  std::optional<Allocation> try_allocate(int64_t bytes, uint32_t stream = 0) {
    const auto allocation = allocator_.allocate(bytes, stream);
    check();
    return allocation;
  }
  Allocation allocate(int64_t bytes, uint32_t stream = 0) {
    const auto allocation = try_allocate(bytes, stream);
    EXPECT_TRUE(allocation);
    return allocation.value_or(Allocation{});
  }
  void free(const Allocation& allocation) {
    allocator_.free(allocation.block);
    check();
  }
  void empty_cache() {
    allocator_.empty_cache();
    check();
  }
  void check() {
    const auto result = allocator_.check_invariants();
    ASSERT_TRUE(result) << result.error().to_string();
  }
  CachingAllocator& operator*() { return allocator_; }
  CachingAllocator* operator->() { return &allocator_; }
  [[nodiscard]] int64_t reserved() const { return allocator_.statistics().reserved_bytes.current; }
  [[nodiscard]] int64_t allocated() const {
    return allocator_.statistics().allocated_bytes.current;
  }

 private:
  DeviceMemory device_;
  CachingAllocator allocator_;
};

TEST(CachingAllocator, SmallRequestsShareTwoMebibytes) {
  Harness harness;
  const Allocation a = harness.allocate(1);
  const Allocation b = harness.allocate(513);
  EXPECT_EQ(a.size, 512);
  EXPECT_EQ(b.size, 1024);
  EXPECT_EQ(b.address, a.address + 512);
  EXPECT_EQ(harness.reserved(), 2 * kMiB);
  EXPECT_EQ(harness.allocated(), 1536);
  EXPECT_EQ(harness->statistics().requested_bytes.current, 514);
  EXPECT_EQ(harness->statistics().inactive_split_bytes.current, 2 * kMiB - 1536);
}

TEST(CachingAllocator, MediumRequestsShareTwentyMebibytes) {
  Harness harness;
  const Allocation a = harness.allocate(9 * kMiB);
  const Allocation b = harness.allocate(9 * kMiB);
  EXPECT_EQ(b.address, a.address + 9 * kMiB);
  EXPECT_EQ(harness.reserved(), 20 * kMiB);
}

// In the large pool a remainder of up to 1 MiB stays with the block, and counts as allocated.
TEST(CachingAllocator, LargeRemaindersOfOneMebibyteAreNotSplitOff) {
  Harness harness;
  const Allocation exact = harness.allocate(19 * kMiB);
  EXPECT_EQ(exact.size, 20 * kMiB);
  EXPECT_EQ(harness.allocated(), 20 * kMiB);
  const Allocation tail = harness.allocate(20 * kMiB - 512);
  EXPECT_EQ(tail.size, 20 * kMiB);
  harness.free(tail);
  const Allocation split = harness.allocate(19 * kMiB - 512);
  EXPECT_EQ(split.address, tail.address);
  EXPECT_EQ(split.size, 19 * kMiB - 512);
}

TEST(CachingAllocator, TakesTheSmallestThenTheLowest) {
  Harness harness;
  const Allocation big = harness.allocate(40 * kMiB);
  const Allocation first = harness.allocate(30 * kMiB);
  const Allocation second = harness.allocate(30 * kMiB);
  harness.free(big);
  harness.free(second);
  harness.free(first);
  EXPECT_EQ(harness.allocate(30 * kMiB).address, first.address);
  EXPECT_EQ(harness.allocate(30 * kMiB).address, second.address);
  EXPECT_EQ(harness.allocate(30 * kMiB).address, big.address);
}

TEST(CachingAllocator, FreeNeighboursMerge) {
  Harness harness;
  const Allocation a = harness.allocate(512);
  const Allocation b = harness.allocate(512);
  const Allocation c = harness.allocate(512);
  harness.free(a);
  EXPECT_EQ(harness->statistics().inactive_splits.current, 2);
  harness.free(c);
  EXPECT_EQ(harness->statistics().inactive_splits.current, 2);  // c joined the rest
  harness.free(b);
  EXPECT_EQ(harness->statistics().inactive_splits.current, 0);  // a whole segment again
  EXPECT_EQ(harness->statistics().inactive_split_bytes.current, 0);
  EXPECT_EQ(harness.reserved(), 2 * kMiB);
}

TEST(CachingAllocator, StreamsAndPoolsAreApart) {
  Harness harness;
  const Allocation a = harness.allocate(30 * kMiB, 0);
  harness.free(a);
  EXPECT_NE(harness.allocate(30 * kMiB, 7).address, a.address);
  EXPECT_EQ(harness.allocate(30 * kMiB, 0).address, a.address);
  const Allocation large = harness.allocate(2 * kMiB);
  harness.free(large);
  EXPECT_NE(harness.allocate(512).address, large.address);
}

TEST(CachingAllocator, EmptyCacheReturnsUnsplitSegmentsOnly) {
  Harness harness;
  const Allocation kept = harness.allocate(2 * kMiB);
  harness.free(harness.allocate(30 * kMiB));
  harness.free(harness.allocate(100));
  EXPECT_EQ(harness.reserved(), 52 * kMiB);
  harness.empty_cache();
  EXPECT_EQ(harness.reserved(), 20 * kMiB);
  EXPECT_EQ(harness->statistics().device_frees, 2);
  EXPECT_EQ(harness->statistics().segments.current, 1);
  harness.free(kept);
}

TEST(CachingAllocator, FlushesTheCacheBeforeOutOfMemory) {
  Harness harness("", DeviceMemory(Bytes{100 * kMiB}, Bytes{200 * kMiB}));
  harness.free(harness.allocate(60 * kMiB));
  EXPECT_TRUE(harness.try_allocate(80 * kMiB));
  EXPECT_EQ(harness->statistics().alloc_retries, 1);
  EXPECT_EQ(harness.reserved(), 80 * kMiB);
  EXPECT_FALSE(harness.try_allocate(30 * kMiB));
  ASSERT_TRUE(harness->last_out_of_memory());
  EXPECT_EQ(harness->last_out_of_memory()->device_free_bytes, 20 * kMiB);
  EXPECT_EQ(harness->statistics().out_of_memory, 1);
}

TEST(CachingAllocator, MemoryFractionLimitsReserved) {
  Harness harness("per_process_memory_fraction:0.5",
                  DeviceMemory(Bytes{200 * kMiB}, Bytes{200 * kMiB}));
  EXPECT_TRUE(harness.try_allocate(80 * kMiB));
  EXPECT_TRUE(harness.try_allocate(20 * kMiB));
  EXPECT_FALSE(harness.try_allocate(512));
}

TEST(CachingAllocator, AbsurdRequestsAreOutOfMemory) {
  Harness harness;
  EXPECT_FALSE(harness.try_allocate(std::numeric_limits<int64_t>::max()));
  EXPECT_FALSE(harness.try_allocate(kMaxRequest));
  EXPECT_TRUE(harness.try_allocate(1));
}

// max_split_size: larger cached blocks serve only requests of nearly their size, and whole.
TEST(CachingAllocator, OversizeBlocks) {
  Harness harness("max_split_size_mb:64");
  const Allocation oversize = harness.allocate(100 * kMiB);
  EXPECT_EQ(harness->statistics().oversize_allocations.current, 1);
  harness.free(oversize);
  EXPECT_NE(harness.allocate(32 * kMiB).address, oversize.address);
  EXPECT_NE(harness.allocate(80 * kMiB).address, oversize.address);  // 20 MiB off: too large
  const Allocation near = harness.allocate(80 * kMiB + 512);
  EXPECT_EQ(near.address, oversize.address);
  EXPECT_EQ(near.size, 100 * kMiB);
}

TEST(CachingAllocator, MaxNonSplitRoundingWidensOversizeReuse) {
  Harness harness("max_split_size_mb:64,max_non_split_rounding_mb:40");
  const Allocation oversize = harness.allocate(100 * kMiB);
  harness.free(oversize);
  EXPECT_EQ(harness.allocate(64 * kMiB).address, oversize.address);
}

TEST(CachingAllocator, OversizeBlocksAreReleasedFirst) {
  Harness harness("max_split_size_mb:64", DeviceMemory(Bytes{240 * kMiB}, Bytes{240 * kMiB}));
  const Allocation a = harness.allocate(70 * kMiB);
  const Allocation b = harness.allocate(80 * kMiB);
  const Allocation c = harness.allocate(30 * kMiB);
  harness.free(a);
  harness.free(b);
  harness.free(c);
  // 60 MiB are free; 130 need both oversize blocks, the largest first, and c stays cached.
  EXPECT_TRUE(harness.try_allocate(130 * kMiB));
  EXPECT_EQ(harness.reserved(), 160 * kMiB);
  EXPECT_EQ(harness->statistics().alloc_retries, 0);
}

TEST(CachingAllocator, GarbageCollectionFreesTheOldFirst) {
  Harness harness("garbage_collection_threshold:0.5,per_process_memory_fraction:1.0",
                  DeviceMemory(Bytes{200 * kMiB}, Bytes{200 * kMiB}));
  const Allocation old_block = harness.allocate(60 * kMiB);
  harness.free(old_block);
  harness.free(harness.allocate(70 * kMiB));
  for (int i = 0; i < 5; ++i) harness.free(harness.allocate(70 * kMiB));  // the same block again
  EXPECT_EQ(harness.reserved(), 130 * kMiB);
  // 130 > 100: the reclaim aims at 30 MiB and starts with blocks of at least average age.
  harness.allocate(100 * kMiB);
  EXPECT_EQ(harness.reserved(), 170 * kMiB);
  EXPECT_EQ(harness->statistics().device_frees, 1);
  EXPECT_EQ(harness->statistics().alloc_retries, 0);
}

TEST(CachingAllocator, BlocksUsedByOtherStreamsWaitForTheirEvents) {
  Harness harness;
  const Allocation a = harness.allocate(30 * kMiB);
  harness->record_stream(a.block, 0);  // its own: no effect
  harness->record_stream(a.block, 5);
  harness->record_stream(a.block, 3);
  harness->record_stream(a.block, 5);
  harness.free(a);
  EXPECT_EQ(harness.allocated(), 0);
  EXPECT_EQ(harness->statistics().active_bytes.current, 30 * kMiB);
  harness->complete_events(5, 1);
  EXPECT_NE(harness.allocate(30 * kMiB).address, a.address);
  harness->complete_events(3, 1);
  EXPECT_EQ(harness->statistics().active_bytes.current, 60 * kMiB);  // until the next request
  EXPECT_EQ(harness.allocate(30 * kMiB).address, a.address);
}

TEST(CachingAllocator, EmptyCacheWaitsForEvents) {
  Harness harness;
  const Allocation a = harness.allocate(30 * kMiB);
  harness->record_stream(a.block, 3);
  harness.free(a);
  harness.empty_cache();
  EXPECT_EQ(harness.reserved(), 0);
  EXPECT_EQ(harness->statistics().synchronizations, 1);
}

TEST(CachingAllocator, HeldBlocksComeBackWhenFinished) {
  Harness harness;
  const Allocation a = harness.allocate(30 * kMiB);
  harness->begin_free(a.block);
  harness.check();
  EXPECT_NE(harness.allocate(30 * kMiB).address, a.address);
  harness->finish_free(a.block);
  harness.check();
  EXPECT_EQ(harness.allocate(30 * kMiB).address, a.address);
}

TEST(ExpandableSegments, GrowByPages) {
  Harness harness("expandable_segments:True", DeviceMemory(Bytes{kGiB}, Bytes{kGiB}));
  const Allocation small = harness.allocate(512);
  EXPECT_EQ(harness.reserved(), 2 * kMiB);
  const Allocation a = harness.allocate(30 * kMiB);
  EXPECT_EQ(harness.reserved(), 42 * kMiB);
  const Allocation b = harness.allocate(30 * kMiB);  // 10 MiB are left and 20 are mapped
  EXPECT_EQ(b.address, a.address + 30 * kMiB);
  EXPECT_EQ(b.size, 30 * kMiB);
  EXPECT_EQ(harness.reserved(), 62 * kMiB);
  EXPECT_EQ(harness->statistics().segments.current, 0);
  harness.free(a);
  harness.free(b);
  const Allocation c = harness.allocate(50 * kMiB);
  EXPECT_EQ(c.address, a.address);
  EXPECT_EQ(harness.reserved(), 62 * kMiB);
  harness.free(c);
  harness.free(small);
  harness.empty_cache();
  EXPECT_EQ(harness.reserved(), 0);
  EXPECT_TRUE(harness->segments().empty());
}

TEST(ExpandableSegments, OnlyWholeFreePagesAreUnmapped) {
  Harness harness("expandable_segments:True", DeviceMemory(Bytes{kGiB}, Bytes{kGiB}));
  const Allocation a = harness.allocate(10 * kMiB);
  const Allocation gap = harness.allocate(60 * kMiB);
  const Allocation c = harness.allocate(10 * kMiB);
  EXPECT_EQ(harness.reserved(), 80 * kMiB);
  harness.free(gap);
  harness.empty_cache();
  EXPECT_EQ(harness.reserved(), 40 * kMiB);  // pages 1 and 2; 0 and 3 are in use
  // The hole is filled again before the end is extended.
  EXPECT_EQ(harness.allocate(60 * kMiB).address, gap.address);
  EXPECT_EQ(harness.reserved(), 80 * kMiB);
  harness.free(a);
  harness.free(c);
}

TEST(ExpandableSegments, PrefersTheBlockThatReachesLeast) {
  Harness harness("expandable_segments:True", DeviceMemory(Bytes{kGiB}, Bytes{kGiB}));
  const Allocation a = harness.allocate(20 * kMiB);
  const Allocation b = harness.allocate(12 * kMiB);  // 8 MiB left at the end, growable
  harness.free(a);
  // 8 MiB fit, but that block reaches far; the whole 20 MiB hole is the tighter one.
  EXPECT_EQ(harness.allocate(4 * kMiB).address, a.address);
  harness.free(b);
}

TEST(ExpandableSegments, OutOfMemoryAfterUnmapping) {
  Harness harness("expandable_segments:True", DeviceMemory(Bytes{100 * kMiB}, Bytes{100 * kMiB}));
  const Allocation a = harness.allocate(40 * kMiB, 1);
  harness.free(a);
  EXPECT_TRUE(harness.try_allocate(80 * kMiB, 2));
  EXPECT_FALSE(harness.try_allocate(40 * kMiB, 2));
  EXPECT_EQ(harness.reserved(), 80 * kMiB);
}

TEST(Adopt, ContinuesWhereAnotherStopped) {
  for (const char* const settings : {"", "expandable_segments:True"}) {
    DeviceMemory device(Bytes{kGiB}, Bytes{kGiB});
    CachingAllocator first(settings_of(settings), device);
    const auto a = first.allocate(5 * kMiB, 0);
    const auto b = first.allocate(7 * kMiB, 0);
    first.allocate(100, 3);
    ASSERT_TRUE(a && b);
    first.free(a->block);
    CachingAllocator second(settings_of(settings), device);
    for (const SegmentImage& image : first.segments()) ASSERT_TRUE(second.adopt(image));
    EXPECT_TRUE(second.check_invariants());
    EXPECT_EQ(second.segments(), first.segments());
    EXPECT_EQ(second.allocate(5 * kMiB, 0)->address, a->address);
  }
}

TEST(Adopt, RefusesWhatCannotBe) {
  DeviceMemory device;
  CachingAllocator allocator({}, device);
  const auto image = [](std::vector<BlockImage> blocks) {
    return SegmentImage{.address = 1 << 20, .blocks = std::move(blocks)};
  };
  EXPECT_FALSE(allocator.adopt(image({})));
  EXPECT_FALSE(allocator.adopt(image({{.size = -512}})));
  EXPECT_FALSE(allocator.adopt(image({{.size = 100}})));
  EXPECT_FALSE(allocator.adopt(image({{.size = 512}, {.size = 512}})));
  EXPECT_FALSE(
      allocator.adopt(image({{.size = 512, .requested = 513, .state = BlockState::allocated}})));
  EXPECT_FALSE(allocator.adopt(image({{.size = 512, .state = BlockState::unmapped}})));
  EXPECT_TRUE(allocator.check_invariants());
}

}  // namespace
}  // namespace headroom::memory
