// What happens when no cached block fits: garbage collection, a new segment, and the two steps of
// giving memory back before out-of-memory; and the events that hold released blocks back.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "memory/caching_allocator.h"

namespace headroom::memory {

// In this order: collect garbage, a new segment, the same after releasing oversize blocks, and the
// same after releasing everything that is cached.
BlockId CachingAllocator::find_memory(const Request& request) {
  if (collects_garbage()) collect_garbage();
  BlockId id = allocate_segment(request, false);
  if (id != kNoBlock) return id;
  if (release_oversize(request)) {
    id = allocate_segment(request, false);
    if (id != kNoBlock) return id;
  }
  release_cached();
  return allocate_segment(request, true);
}

BlockId CachingAllocator::allocate_segment(const Request& request, bool is_retry) {
  if (is_retry) ++statistics_.alloc_retries;
  if (memory_limit_ && request.segment_size > *memory_limit_ - statistics_.reserved_bytes.current) {
    return kNoBlock;
  }
  if (settings_.expandable_segments) return allocate_expandable(request);
  const auto address = source_.allocate({request.segment_size, request.stream, request.is_small});
  if (!address) return kNoBlock;
  const BlockId id = new_block();
  Block& block = blocks_[id];
  block.address = *address;
  block.size = request.segment_size;
  block.stream = request.stream;
  block.is_small = request.is_small;
  statistics_.segments.add(1);
  statistics_.reserved_bytes.add(block.size);
  if (block.size >= settings_.max_split_size_bytes) statistics_.oversize_segments.add(1);
  ++statistics_.device_allocs;
  return id;
}

// Gives a free, unsplit segment back to the driver.
void CachingAllocator::release_segment(BlockId id) {
  const Block block = blocks_[id];
  HEADROOM_CHECK(block.expandable == kNoExpandable && !is_split(block), "segment is still in use");
  source_.release(block.address, block.size);
  erase_free(id);
  drop_block(id);
  ++statistics_.device_frees;
  statistics_.segments.add(-1);
  statistics_.reserved_bytes.add(-block.size);
  if (block.size >= settings_.max_split_size_bytes) statistics_.oversize_segments.add(-1);
}

// Releases unsplit large blocks that were not looked at for longer than the average, until the
// reserved memory is below the threshold or nothing more qualifies.
void CachingAllocator::collect_garbage() {
  const auto threshold = static_cast<int64_t>(settings_.garbage_collection_threshold *
                                              static_cast<double>(*memory_limit_));
  if (statistics_.reserved_bytes.current <= threshold) return;
  const int64_t target = statistics_.reserved_bytes.current - threshold;
  std::vector<BlockId> freeable;
  int64_t total_age = 0;
  for (const auto& stream : streams_) {
    const FreeIndex& free = stream->pools[0].free;
    for (auto at = free.begin(); at != free.end(); at = free.next(at)) {
      const BlockId id = free.at(at).block;
      // PyTorch would trip over an expandable segment here; none is unsplit unless its whole
      // address space is mapped, which is more than the device has.
      if (is_split(blocks_[id]) || blocks_[id].expandable != kNoExpandable) continue;
      freeable.push_back(id);
      total_age += lookups_[0] - blocks_[id].gc_base;
    }
  }
  int64_t reclaimed = 0;
  bool progress = true;
  while (reclaimed < target && progress && !freeable.empty()) {
    const double age_limit = static_cast<double>(total_age) / static_cast<double>(freeable.size());
    progress = false;
    std::vector<BlockId> younger;
    for (const BlockId id : freeable) {
      const int64_t age = lookups_[0] - blocks_[id].gc_base;
      if (static_cast<double>(age) < age_limit) {
        younger.push_back(id);
        continue;
      }
      progress = true;
      reclaimed += blocks_[id].size;
      total_age -= age;
      release_segment(id);
    }
    freeable = std::move(younger);
  }
}

// With a max_split_size: releases the smallest oversize block that would do, or several from the
// largest down. False where that cannot give enough. Oversize blocks are whole segments, except in
// expandable ones, where PyTorch fails an assertion and we release nothing.
bool CachingAllocator::release_oversize(const Request& request) {
  const int64_t limit = settings_.max_split_size_bytes;
  if (limit == kUnlimited) return false;
  const int64_t wanted = std::max(request.size, limit);
  FreeIndex& free = stream_of(request.stream).pools[request.is_small].free;
  const auto enough = free.lower_bound(wanted, 0);
  if (enough != free.end()) {
    const BlockId id = free.at(enough).block;
    if (blocks_[id].expandable != kNoExpandable || is_split(blocks_[id])) return false;
    release_segment(id);
    return true;
  }
  int64_t released = 0;
  while (released < wanted && !free.empty()) {
    const FreeIndex::Entry largest = free.at(free.previous(free.end()));
    if (largest.size < limit) break;
    if (blocks_[largest.block].expandable != kNoExpandable || is_split(blocks_[largest.block])) {
      break;
    }
    released += largest.size;
    release_segment(largest.block);
  }
  return released >= wanted;
}

void CachingAllocator::empty_cache() { release_cached(); }

void CachingAllocator::release_cached() {
  synchronize_events();
  release_pool(false);
  release_pool(true);
}

// In the order in which they go: unsplit segments, then blocks of expandable segments.
std::vector<BlockId> CachingAllocator::releasable_blocks(bool is_small) const {
  std::vector<BlockId> whole;
  std::vector<BlockId> expandable;
  for (const auto& stream : streams_) {
    const FreeIndex& free = stream->pools[is_small].free;
    for (auto at = free.begin(); at != free.end(); at = free.next(at)) {
      const BlockId id = free.at(at).block;
      if (blocks_[id].expandable != kNoExpandable) {
        expandable.push_back(id);
      } else if (!is_split(blocks_[id])) {
        whole.push_back(id);
      }
    }
  }
  whole.insert(whole.end(), expandable.begin(), expandable.end());
  return whole;
}

std::vector<std::pair<int64_t, int64_t>> CachingAllocator::releasable() const {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (const bool is_small : {false, true}) {
    for (const BlockId id : releasable_blocks(is_small)) {
      const Block& block = blocks_[id];
      if (block.expandable == kNoExpandable) {
        ranges.emplace_back(block.address, block.size);
      } else if (const auto [begin, end] = whole_pages(block); begin < end) {
        ranges.emplace_back(expandables_[block.expandable].address + begin, end - begin);
      }
    }
  }
  return ranges;
}

// Every unsplit segment goes; of expandable segments, every whole page that is free.
void CachingAllocator::release_pool(bool is_small) {
  for (const BlockId id : releasable_blocks(is_small)) {
    if (blocks_[id].expandable == kNoExpandable) {
      release_segment(id);
      continue;
    }
    unmap_block(id);
    if (!is_split(blocks_[id])) release_expandable(id);
  }
}

void CachingAllocator::event_done(BlockId id) {
  --outstanding_events_;
  if (--blocks_[id].event_count == 0) release_to_pool(id);
}

void CachingAllocator::complete_events(uint32_t stream_id, size_t count) {
  Stream& stream = stream_of(stream_id);
  stream.completed += std::min(count, stream.events.size() - stream.completed);
}

// Events complete in order on each stream; streams do not wait for each other.
void CachingAllocator::process_events() {
  for (const auto& stream : streams_) {
    for (; stream->completed > 0; --stream->completed) {
      event_done(stream->events.front());
      stream->events.pop_front();
    }
  }
}

void CachingAllocator::synchronize_events() {
  ++statistics_.synchronizations;
  for (const auto& stream : streams_) stream->completed = stream->events.size();
  process_events();
}

}  // namespace headroom::memory
