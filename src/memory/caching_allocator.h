// CachingAllocator: PyTorch's CUDACachingAllocator for one device, without the device.
//
// Problem: given the requests and releases of a program, in order, say which block each request
// gets and what the allocator holds from the driver at every moment, exactly as PyTorch would. It
// is the basis of every "reserved" and "peak allocated" figure, of `fit` and of `pack` alike.
//
// Invariants (check_invariants() tests each by this number):
//  1. The blocks of a segment tile it: each begins where its predecessor ends, `prev` and `next`
//     agree, and a segment's first block has no predecessor.
//  2. No two neighbours are both free with memory behind them, nor both unmapped.
//  3. A block is in exactly one place: free blocks in the free index of their (stream, pool),
//     unmapped ones in its unmapped index, allocated and pending ones in neither. An index entry
//     carries its block's own size and address.
//  4. Every size is a positive multiple of 512 bytes; what was requested fits its block.
//  5. All blocks of a segment have its stream and its pool.
//  6. A segment of the small pool that is not expandable is 2 MiB.
//  7. Unmapped blocks exist only in expandable segments, begin and end on the segment's pages, and
//     an expandable segment's blocks cover its whole reserved range.
//  8. No two segments overlap.
//  9. A pending block has at least one outstanding event or was released by begin_free(); an
//     allocated one has none outstanding.
// 10. The statistics are the sums over blocks: allocated, active = allocated + pending, requested
//     (of active blocks), reserved = mapped, inactive_split = free blocks of segments that are not
//     expandable and have more than one block.
//
// Cost: O(log n) a call in the number n of cached blocks of the stream and pool, 50 to 150 ns in
// practice; about 60 bytes a block. Not thread-safe. Deterministic.
//
// Source: c10/cuda/CUDACachingAllocator.cpp (DeviceCachingAllocator) of PyTorch, rules read at
// commit 001074d and unchanged where newer versions were compared, except for
// max_non_split_rounding_mb and large_segment_size_mb, which are taken from newer ones. Left out:
// private pools of CUDA graphs, and free-memory callbacks (collecting CUDA IPC handles).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "memory/allocator_settings.h"
#include "memory/free_index.h"
#include "memory/segment_source.h"

namespace headroom::memory {

using BlockId = uint32_t;
inline constexpr BlockId kNoBlock = 0xffffffff;

struct Allocation {
  BlockId block = kNoBlock;  // good until it is freed
  int64_t address = 0;
  int64_t size = 0;  // what "allocated" counts: rounded, with any remainder that was not split off
};

// A figure and the highest it has been, like torch.cuda.memory_stats()'s current and peak.
struct Statistic {
  int64_t current = 0;
  int64_t peak = 0;
  void add(int64_t amount) {
    current += amount;
    if (current > peak) peak = current;
  }
};

// torch.cuda.memory_stats() over both pools.
struct AllocatorStatistics {
  Statistic allocated_bytes;
  Statistic active_bytes;  // allocated, or released and waiting for another stream
  Statistic reserved_bytes;
  Statistic requested_bytes;
  Statistic inactive_split_bytes;
  Statistic allocations;
  Statistic active_blocks;
  Statistic segments;  // as in torch, expandable segments are not counted
  Statistic inactive_splits;
  Statistic oversize_allocations;
  Statistic oversize_segments;
  int64_t alloc_retries = 0;
  int64_t out_of_memory = 0;
  int64_t device_allocs = 0;  // cudaMalloc and mappings
  int64_t device_frees = 0;
  int64_t synchronizations = 0;
};

// Why the last allocate() returned nothing.
struct OutOfMemory {
  int64_t requested_bytes = 0;
  int64_t segment_bytes = 0;  // what was asked of the driver
  int64_t device_free_bytes = 0;
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;
};

enum class BlockState : uint8_t { free, allocated, pending, unmapped };

// One segment with its blocks, as a memory snapshot shows it.
struct BlockImage {
  int64_t size = 0;
  int64_t requested = 0;
  BlockState state = BlockState::free;
  bool operator==(const BlockImage&) const = default;
};
struct SegmentImage {
  int64_t address = 0;
  uint32_t stream = 0;
  bool is_small = false;
  bool is_expandable = false;  // then `blocks` cover all of its address space
  std::vector<BlockImage> blocks;
  bool operator==(const SegmentImage&) const = default;
};

class CachingAllocator {
 public:
  // REQUIRES: `source` outlives the allocator.
  CachingAllocator(const AllocatorSettings& settings, SegmentSource& source);

  // A block of at least `requested` bytes, or nothing when memory is out (last_out_of_memory()).
  // Streams are numbers; their order is PyTorch's order of stream handles.
  // REQUIRES: requested >= 0. (Tensors of zero bytes never reach PyTorch's allocator.)
  std::optional<Allocation> allocate(int64_t requested, uint32_t stream);

  // Whether the request would be served from the cache, leaving out what events might bring back.
  [[nodiscard]] bool has_cached(int64_t requested, uint32_t stream) const;

  // REQUIRES (for all below): `block` is allocated.
  // Releases it; where other streams used it, only once their events have completed.
  void free(BlockId block);
  // tensor.record_stream(): `stream` uses the block. The block's own stream has no effect.
  void record_stream(BlockId block, uint32_t stream);

  // The first `count` outstanding events of `stream` are done on the device. As in PyTorch, their
  // blocks come back at the next allocate() or when the cache is emptied.
  void complete_events(uint32_t stream, size_t count);

  // The two halves of free() for replaying a recorded timeline, in which only the moment of
  // completion is known: begin_free() leaves the block pending until finish_free().
  void begin_free(BlockId block);
  // REQUIRES: `block` is pending by begin_free().
  void finish_free(BlockId block);

  // torch.cuda.empty_cache(): waits for all events, then returns every unsplit segment and every
  // whole free page of expandable segments.
  void empty_cache();

  // Address and size of what empty_cache() would return, in its order, with no events outstanding.
  [[nodiscard]] std::vector<std::pair<int64_t, int64_t>> releasable() const;

  // Takes over a segment as it stands. The new blocks' ids come back in order. The error names a
  // block that contradicts an invariant. REQUIRES: it overlaps no other segment.
  Result<std::vector<BlockId>> adopt(const SegmentImage& image);
  // All segments in address order; adopting them again gives the same allocator.
  [[nodiscard]] std::vector<SegmentImage> segments() const;

  [[nodiscard]] const AllocatorStatistics& statistics() const { return statistics_; }
  [[nodiscard]] const std::optional<OutOfMemory>& last_out_of_memory() const { return oom_; }
  void reset_peaks();

  // Tests every invariant above; the error's `where` is "invariant N". Slow, for tests.
  [[nodiscard]] Result<void> check_invariants() const;

 private:
  static constexpr uint32_t kNoExpandable = 0xffffffff;

  struct Block {
    int64_t address = 0;
    int64_t size = 0;
    int64_t requested = 0;
    int64_t gc_base = 0;  // the pool's look-up count when the block entered the free index
    BlockId prev = kNoBlock;
    BlockId next = kNoBlock;
    uint32_t stream = 0;
    uint32_t expandable = kNoExpandable;  // index into expandables_
    uint32_t event_count = 0;
    BlockState state = BlockState::free;
    bool is_small = false;
    bool has_uses = false;  // other streams were recorded: an entry in stream_uses_
    bool held = false;      // pending by begin_free()
    bool in_use = false;    // false: this slot of blocks_ is vacant
  };

  struct Pool {
    FreeIndex free;
    FreeIndex unmapped;  // size 0 in every key: by address alone
  };
  struct Stream {
    uint32_t id = 0;
    Pool pools[2];  // large, small
    std::deque<BlockId> events;
    size_t completed = 0;  // of `events`, from the front
  };
  struct Expandable {
    int64_t address = 0;
    int64_t size = 0;
    int64_t page = 0;
    bool in_use = false;
  };
  struct StreamUses {
    BlockId block = kNoBlock;
    std::vector<uint32_t> streams;  // ascending
  };
  struct Request {
    int64_t requested = 0;
    int64_t size = 0;          // rounded
    int64_t segment_size = 0;  // what a new segment would be
    uint32_t stream = 0;
    bool is_small = false;
  };

  // caching_allocator.cpp: blocks, pools, the common path.
  BlockId new_block();
  void drop_block(BlockId id);
  Stream& stream_of(uint32_t id) {
    return last_stream_ != nullptr && last_stream_->id == id ? *last_stream_ : find_stream(id);
  }
  Stream& find_stream(uint32_t id);
  Pool& pool_of(const Block& block) { return stream_of(block.stream).pools[block.is_small]; }
  void insert_free(BlockId id);
  void erase_free(BlockId id);
  [[nodiscard]] bool is_split(const Block& block) const {
    return block.prev != kNoBlock || block.next != kNoBlock;
  }
  [[nodiscard]] bool collects_garbage() const;
  [[nodiscard]] Request make_request(int64_t requested, uint32_t stream) const;
  [[nodiscard]] FreeIndex::Cursor find_free_block(const FreeIndex& free,
                                                  const Request& request) const;
  BlockId take_free_block(const Request& request);
  [[nodiscard]] bool should_split(const Block& block, int64_t size) const;
  Allocation hand_out(BlockId id, const Request& request);
  BlockId split_front(BlockId id, int64_t size);
  int64_t merge(BlockId into, BlockId neighbour);
  void release_to_pool(BlockId id);
  void start_free(BlockId id);
  void record_out_of_memory(const Request& request);

  // caching_allocator_driver.cpp: segments from and to the driver.
  BlockId find_memory(const Request& request);
  BlockId allocate_segment(const Request& request, bool is_retry);
  void release_segment(BlockId id);
  void collect_garbage();
  bool release_oversize(const Request& request);
  void release_cached();
  [[nodiscard]] std::vector<BlockId> releasable_blocks(bool is_small) const;
  void release_pool(bool is_small);
  void process_events();
  void synchronize_events();
  void event_done(BlockId id);

  // caching_allocator_expandable.cpp.
  FreeIndex::Cursor skip_to_expandable_fit(const FreeIndex& free, FreeIndex::Cursor at) const;
  BlockId allocate_expandable(const Request& request);
  BlockId find_expandable(const Request& request);
  bool has_room(BlockId id, int64_t size) const;
  bool map_block(BlockId id, int64_t size);
  // The whole pages inside a block, as offsets from its segment's start; empty where end <= begin.
  [[nodiscard]] std::pair<int64_t, int64_t> whole_pages(const Block& block) const;
  void unmap_block(BlockId id);
  void release_expandable(BlockId id);

  // caching_allocator_state.cpp: adopting, showing, checking.
  [[nodiscard]] Result<void> check_block(BlockId id) const;
  [[nodiscard]] Result<void> check_indexes() const;
  [[nodiscard]] Result<void> check_segments() const;
  [[nodiscard]] Result<void> check_statistics() const;

  AllocatorSettings settings_;
  SegmentSource& source_;
  std::optional<int64_t> memory_limit_;  // from settings_.memory_fraction
  std::vector<Block> blocks_;
  std::vector<BlockId> vacant_;
  std::vector<std::unique_ptr<Stream>> streams_;  // ascending by id
  Stream* last_stream_ = nullptr;                 // of the last look-up; streams stay
  std::vector<Expandable> expandables_;
  std::vector<StreamUses> stream_uses_;
  size_t outstanding_events_ = 0;
  int64_t lookups_[2] = {0, 0};  // large, small; counted only while garbage is collected
  AllocatorStatistics statistics_;
  std::optional<OutOfMemory> oom_;
};

}  // namespace headroom::memory
