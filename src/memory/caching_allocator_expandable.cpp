// Expandable segments: one range of addresses a stream and pool, with memory mapped behind it page
// by page (2 MiB in the small pool, 20 MiB in the large one). Unmapped addresses are blocks too.
#include <algorithm>

#include "base/check.h"
#include "memory/caching_allocator.h"

namespace headroom::memory {

// Best fit where the candidate lies in an expandable segment: a block counts as large as it could
// grow into the unmapped block behind it, so a later, tighter one may be chosen. With expandable
// segments switched off again, their blocks are passed over.
FreeIndex::Cursor CachingAllocator::skip_to_expandable_fit(const FreeIndex& free,
                                                           FreeIndex::Cursor at) const {
  const auto is_expandable = [&](FreeIndex::Cursor cursor) {
    return blocks_[free.at(cursor).block].expandable != kNoExpandable;
  };
  if (!settings_.expandable_segments) {
    do {
      at = free.next(at);
    } while (at != free.end() && is_expandable(at));
    return at;
  }
  const auto reach = [&](FreeIndex::Cursor cursor) {
    const Block& block = blocks_[free.at(cursor).block];
    const bool can_grow =
        block.next != kNoBlock && blocks_[block.next].state == BlockState::unmapped;
    return block.size + (can_grow ? blocks_[block.next].size : 0);
  };
  auto next = free.next(at);
  while (is_expandable(at) && next != free.end() && reach(next) < reach(at)) {
    at = next;
    next = free.next(next);
  }
  return at;
}

// Whether `size` bytes of free or unmapped blocks follow each other from this one on.
bool CachingAllocator::has_room(BlockId id, int64_t size) const {
  int64_t bytes = 0;
  while (bytes < size && id != kNoBlock &&
         (blocks_[id].state == BlockState::free || blocks_[id].state == BlockState::unmapped)) {
    bytes += blocks_[id].size;
    id = blocks_[id].next;
  }
  return bytes >= size;
}

// The lowest place of the stream's segments with room for the request, else a new segment.
BlockId CachingAllocator::find_expandable(const Request& request) {
  const FreeIndex& unmapped = stream_of(request.stream).pools[request.is_small].unmapped;
  for (auto at = unmapped.begin(); at != unmapped.end(); at = unmapped.next(at)) {
    BlockId id = unmapped.at(at).block;
    const BlockId before = blocks_[id].prev;
    if (before != kNoBlock && (blocks_[before].state == BlockState::free ||
                               blocks_[before].state == BlockState::unmapped)) {
      id = before;
    }
    if (has_room(id, request.size)) return id;
  }
  const int64_t page = request.is_small ? kSmallBuffer : settings_.large_segment_size_bytes;
  const int64_t total = source_.total_bytes();
  const int64_t reserved = round_up(total + total / 8, page);
  if (reserved < request.size) return kNoBlock;
  const auto address = source_.reserve({reserved, request.stream, request.is_small});
  if (!address) return kNoBlock;
  const auto vacant = std::find_if(expandables_.begin(), expandables_.end(),
                                   [](const Expandable& entry) { return !entry.in_use; });
  const auto index = static_cast<uint32_t>(vacant - expandables_.begin());
  if (vacant == expandables_.end()) expandables_.emplace_back();
  expandables_[index] = {*address, reserved, page, true};
  const BlockId id = new_block();
  Block& block = blocks_[id];
  block.address = *address;
  block.size = reserved;
  block.stream = request.stream;
  block.is_small = request.is_small;
  block.expandable = index;
  block.state = BlockState::unmapped;
  pool_of(block).unmapped.insert({0, block.address, id});
  return id;
}

// Puts memory behind the first `size` bytes of an unmapped block, rounded up to pages, and merges
// the result with free neighbours into a cached block of the same id.
bool CachingAllocator::map_block(BlockId id, int64_t size) {
  const int64_t mapped = round_up(size, expandables_[blocks_[id].expandable].page);
  HEADROOM_CHECK(blocks_[id].state == BlockState::unmapped && mapped <= blocks_[id].size,
                 "mapping beyond an unmapped block");
  if (!source_.map(blocks_[id].address, mapped)) return false;
  pool_of(blocks_[id]).unmapped.erase(0, blocks_[id].address);
  if (mapped < blocks_[id].size) {
    const BlockId rest_id = new_block();
    Block& block = blocks_[id];
    Block& rest = blocks_[rest_id];
    rest.address = block.address + mapped;
    rest.size = block.size - mapped;
    rest.stream = block.stream;
    rest.is_small = block.is_small;
    rest.expandable = block.expandable;
    rest.state = BlockState::unmapped;
    rest.prev = id;
    rest.next = block.next;
    if (rest.next != kNoBlock) blocks_[rest.next].prev = rest_id;
    block.next = rest_id;
    block.size = mapped;
    pool_of(rest).unmapped.insert({0, rest.address, rest_id});
  }
  blocks_[id].state = BlockState::free;
  merge(id, blocks_[id].prev);
  merge(id, blocks_[id].next);
  insert_free(id);
  statistics_.reserved_bytes.add(mapped);
  ++statistics_.device_allocs;
  return true;
}

BlockId CachingAllocator::allocate_expandable(const Request& request) {
  BlockId id = find_expandable(request);
  if (id == kNoBlock) return kNoBlock;
  if (blocks_[id].state == BlockState::unmapped &&
      !map_block(id, std::min(blocks_[id].size, request.size))) {
    return kNoBlock;
  }
  while (blocks_[id].size < request.size) {
    const BlockId next = blocks_[id].next;
    const int64_t missing = request.size - blocks_[id].size;
    if (!map_block(next, std::min(missing, blocks_[next].size))) return kNoBlock;
    id = next;  // it has swallowed its predecessor
  }
  erase_free(id);
  return id;
}

std::pair<int64_t, int64_t> CachingAllocator::whole_pages(const Block& block) const {
  const Expandable& segment = expandables_[block.expandable];
  const int64_t start = block.address - segment.address;
  return {round_up(start, segment.page), (start + block.size) / segment.page * segment.page};
}

// Takes the memory from behind the whole pages of a free block; the parts of pages at its ends stay
// cached as blocks of their own.
void CachingAllocator::unmap_block(BlockId id) {
  const Expandable segment = expandables_[blocks_[id].expandable];
  const int64_t start = blocks_[id].address - segment.address;
  const auto [begin, end] = whole_pages(blocks_[id]);
  if (begin >= end) return;
  source_.unmap(segment.address + begin, end - begin);
  erase_free(id);
  if (begin > start) {
    insert_free(split_front(id, begin - start));
  }
  if (blocks_[id].size > end - begin) {
    const BlockId rest_id = new_block();
    Block& block = blocks_[id];
    Block& rest = blocks_[rest_id];
    rest = block;
    rest.address = block.address + (end - begin);
    rest.size = block.size - (end - begin);
    rest.prev = id;
    if (rest.next != kNoBlock) blocks_[rest.next].prev = rest_id;
    block.next = rest_id;
    block.size = end - begin;
    insert_free(rest_id);
  }
  blocks_[id].state = BlockState::unmapped;
  merge(id, blocks_[id].prev);
  merge(id, blocks_[id].next);
  pool_of(blocks_[id]).unmapped.insert({0, blocks_[id].address, id});
  statistics_.reserved_bytes.add(-(end - begin));
  ++statistics_.device_frees;
}

// Gives the addresses back once nothing is mapped.
void CachingAllocator::release_expandable(BlockId id) {
  Expandable& segment = expandables_[blocks_[id].expandable];
  HEADROOM_CHECK(blocks_[id].state == BlockState::unmapped && blocks_[id].size == segment.size,
                 "expandable segment is still in use");
  source_.unreserve(segment.address, segment.size);
  pool_of(blocks_[id]).unmapped.erase(0, blocks_[id].address);
  segment.in_use = false;
  drop_block(id);
}

}  // namespace headroom::memory
