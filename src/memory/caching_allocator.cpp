// The common path: a request is rounded, the best cached block is taken and perhaps split; a
// release merges it with its free neighbours. See caching_allocator.h for the invariants and the
// source.
#include "memory/caching_allocator.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace headroom::memory {

CachingAllocator::CachingAllocator(const AllocatorSettings& settings, SegmentSource& source)
    : settings_(settings), source_(source) {
  if (settings_.memory_fraction) {
    memory_limit_ = static_cast<int64_t>(*settings_.memory_fraction *
                                         static_cast<double>(source_.total_bytes()));
  }
}

BlockId CachingAllocator::new_block() {
  BlockId id = 0;
  if (vacant_.empty()) {
    HEADROOM_CHECK(blocks_.size() < kNoBlock, "too many blocks");
    id = static_cast<BlockId>(blocks_.size());
    blocks_.emplace_back();
  } else {
    id = vacant_.back();
    vacant_.pop_back();
    blocks_[id] = Block{};
  }
  blocks_[id].in_use = true;
  return id;
}

void CachingAllocator::drop_block(BlockId id) {
  blocks_[id].in_use = false;
  vacant_.push_back(id);
}

CachingAllocator::Stream& CachingAllocator::find_stream(uint32_t id) {
  auto at = std::lower_bound(
      streams_.begin(), streams_.end(), id,
      [](const std::unique_ptr<Stream>& stream, uint32_t wanted) { return stream->id < wanted; });
  if (at == streams_.end() || (*at)->id != id) {
    at = streams_.insert(at, std::make_unique<Stream>());
    (*at)->id = id;
  }
  last_stream_ = at->get();
  return *last_stream_;
}

void CachingAllocator::insert_free(BlockId id) {
  Block& block = blocks_[id];
  block.state = BlockState::free;
  block.gc_base = lookups_[block.is_small];
  pool_of(block).free.insert({block.size, block.address, id});
}

void CachingAllocator::erase_free(BlockId id) {
  const Block& block = blocks_[id];
  pool_of(block).free.erase(block.size, block.address);
}

bool CachingAllocator::collects_garbage() const {
  return memory_limit_.has_value() && settings_.garbage_collection_threshold > 0;
}

std::optional<Allocation> CachingAllocator::allocate(int64_t requested, uint32_t stream) {
  HEADROOM_CHECK(requested >= 0, "negative allocation");
  if (outstanding_events_ > 0) process_events();
  Request request{.requested = requested, .stream = stream};
  if (requested > kMaxRequest) {
    request.segment_size = requested;
    record_out_of_memory(request);
    return std::nullopt;
  }
  request = make_request(requested, stream);
  BlockId id = take_free_block(request);
  if (id == kNoBlock) id = find_memory(request);
  if (id == kNoBlock) {
    record_out_of_memory(request);
    return std::nullopt;
  }
  return hand_out(id, request);
}

void CachingAllocator::record_out_of_memory(const Request& request) {
  ++statistics_.out_of_memory;
  oom_ = OutOfMemory{.requested_bytes = request.requested,
                     .segment_bytes = request.segment_size,
                     .device_free_bytes = source_.free_bytes(),
                     .allocated_bytes = statistics_.allocated_bytes.current,
                     .reserved_bytes = statistics_.reserved_bytes.current};
}

CachingAllocator::Request CachingAllocator::make_request(int64_t requested, uint32_t stream) const {
  const int64_t size = rounded_size(settings_, requested);
  return {.requested = requested,
          .size = size,
          .segment_size = segment_size_for(settings_, size),
          .stream = stream,
          .is_small = size <= kSmallSize};
}

// Best fit: the smallest cached block of the stream that is large enough, the lowest address first.
FreeIndex::Cursor CachingAllocator::find_free_block(const FreeIndex& free,
                                                    const Request& request) const {
  FreeIndex::Cursor at = free.lower_bound(request.size, 0);
  if (at == free.end()) return at;
  if (blocks_[free.at(at).block].expandable != kNoExpandable) {
    at = skip_to_expandable_fit(free, at);
    if (at == free.end()) return at;
  }
  const int64_t found = free.at(at).size;
  const int64_t limit = settings_.max_split_size_bytes;
  // An oversize block would be spent whole on a request that may be split from another.
  if (request.size < limit && found >= limit) return free.end();
  if (request.size >= limit && found - request.size >= settings_.max_non_split_rounding_bytes) {
    return free.end();
  }
  return at;
}

bool CachingAllocator::has_cached(int64_t requested, uint32_t stream) const {
  if (requested > kMaxRequest) return false;
  const Request request = make_request(requested, stream);
  for (const auto& entry : streams_) {
    if (entry->id != stream) continue;
    const FreeIndex& free = entry->pools[request.is_small].free;
    return find_free_block(free, request) != free.end();
  }
  return false;
}

BlockId CachingAllocator::take_free_block(const Request& request) {
  if (collects_garbage()) ++lookups_[request.is_small];
  FreeIndex& free = stream_of(request.stream).pools[request.is_small].free;
  const FreeIndex::Cursor at = find_free_block(free, request);
  if (at == free.end()) return kNoBlock;
  const BlockId id = free.at(at).block;
  free.erase(at);
  return id;
}

bool CachingAllocator::should_split(const Block& block, int64_t size) const {
  const int64_t remaining = block.size - size;
  if (block.is_small || settings_.expandable_segments) return remaining >= kMinBlockSize;
  return size < settings_.max_split_size_bytes && remaining > kSmallSize;
}

// Cuts the first `size` bytes off a block that is in no index; the rest keeps the id.
BlockId CachingAllocator::split_front(BlockId id, int64_t size) {
  const BlockId front_id = new_block();  // may move blocks_
  Block& rest = blocks_[id];
  Block& front = blocks_[front_id];
  front.address = rest.address;
  front.size = size;
  front.stream = rest.stream;
  front.is_small = rest.is_small;
  front.expandable = rest.expandable;
  front.prev = rest.prev;
  front.next = id;
  if (front.prev != kNoBlock) blocks_[front.prev].next = front_id;
  rest.prev = front_id;
  rest.address += size;
  rest.size -= size;
  return front_id;
}

Allocation CachingAllocator::hand_out(BlockId id, const Request& request) {
  const bool already_split = is_split(blocks_[id]);
  const bool counts_splits = blocks_[id].expandable == kNoExpandable;
  if (should_split(blocks_[id], request.size)) {
    const BlockId rest = id;
    id = split_front(rest, request.size);
    insert_free(rest);
    if (counts_splits && already_split) {
      statistics_.inactive_split_bytes.add(-request.size);
    } else if (counts_splits) {
      statistics_.inactive_split_bytes.add(blocks_[rest].size);
      statistics_.inactive_splits.add(1);
    }
  } else if (counts_splits && already_split) {
    statistics_.inactive_split_bytes.add(-blocks_[id].size);
    statistics_.inactive_splits.add(-1);
  }
  Block& block = blocks_[id];
  block.state = BlockState::allocated;
  block.requested = request.requested;
  statistics_.allocations.add(1);
  statistics_.allocated_bytes.add(block.size);
  statistics_.active_blocks.add(1);
  statistics_.active_bytes.add(block.size);
  statistics_.requested_bytes.add(block.requested);
  if (block.size >= settings_.max_split_size_bytes) statistics_.oversize_allocations.add(1);
  return {id, block.address, block.size};
}

// From allocated to pending: the program is done with it.
void CachingAllocator::start_free(BlockId id) {
  HEADROOM_CHECK(
      id < blocks_.size() && blocks_[id].in_use && blocks_[id].state == BlockState::allocated,
      "freeing a block that is not allocated");
  Block& block = blocks_[id];
  block.state = BlockState::pending;
  statistics_.allocations.add(-1);
  statistics_.allocated_bytes.add(-block.size);
  if (block.size >= settings_.max_split_size_bytes) statistics_.oversize_allocations.add(-1);
}

void CachingAllocator::free(BlockId id) {
  start_free(id);
  if (!blocks_[id].has_uses) {
    release_to_pool(id);
    return;
  }
  const auto uses = std::find_if(stream_uses_.begin(), stream_uses_.end(),
                                 [id](const StreamUses& entry) { return entry.block == id; });
  const std::vector<uint32_t> streams = std::move(uses->streams);
  stream_uses_.erase(uses);
  blocks_[id].has_uses = false;
  for (const uint32_t stream : streams) {
    ++blocks_[id].event_count;
    ++outstanding_events_;
    stream_of(stream).events.push_back(id);
  }
}

void CachingAllocator::begin_free(BlockId id) {
  start_free(id);
  blocks_[id].held = true;
}

void CachingAllocator::finish_free(BlockId id) {
  HEADROOM_CHECK(id < blocks_.size() && blocks_[id].in_use && blocks_[id].held,
                 "finishing the free of a block that is not pending");
  blocks_[id].held = false;
  release_to_pool(id);
}

void CachingAllocator::record_stream(BlockId id, uint32_t stream) {
  HEADROOM_CHECK(
      id < blocks_.size() && blocks_[id].in_use && blocks_[id].state == BlockState::allocated,
      "recording a stream on a block that is not allocated");
  if (blocks_[id].stream == stream) return;
  if (!blocks_[id].has_uses) {
    blocks_[id].has_uses = true;
    stream_uses_.push_back({id, {}});
  }
  const auto uses = std::find_if(stream_uses_.begin(), stream_uses_.end(),
                                 [id](const StreamUses& entry) { return entry.block == id; });
  const auto at = std::lower_bound(uses->streams.begin(), uses->streams.end(), stream);
  if (at == uses->streams.end() || *at != stream) uses->streams.insert(at, stream);
}

// `into` swallows its neighbour where that is free (or unmapped, as `into` is); returns the
// neighbour's size, or 0 where it stays. `into` must be in no index.
int64_t CachingAllocator::merge(BlockId into_id, BlockId neighbour_id) {
  if (neighbour_id == kNoBlock) return 0;
  Block& into = blocks_[into_id];
  const Block& neighbour = blocks_[neighbour_id];
  const bool wants_unmapped = into.state == BlockState::unmapped;
  if (neighbour.state != (wants_unmapped ? BlockState::unmapped : BlockState::free)) return 0;
  if (wants_unmapped) {
    pool_of(neighbour).unmapped.erase(0, neighbour.address);
  } else {
    erase_free(neighbour_id);
  }
  if (into.prev == neighbour_id) {
    into.address = neighbour.address;
    into.prev = neighbour.prev;
    if (into.prev != kNoBlock) blocks_[into.prev].next = into_id;
  } else {
    into.next = neighbour.next;
    if (into.next != kNoBlock) blocks_[into.next].prev = into_id;
  }
  into.size += neighbour.size;
  drop_block(neighbour_id);
  return neighbour.size;
}

// From pending to cached.
void CachingAllocator::release_to_pool(BlockId id) {
  const int64_t size = blocks_[id].size;
  const int64_t requested = blocks_[id].requested;
  blocks_[id].requested = 0;
  int64_t splits = 0;
  int64_t split_bytes = 0;
  for (const BlockId neighbour : {blocks_[id].prev, blocks_[id].next}) {
    const int64_t swallowed = merge(id, neighbour);
    if (swallowed > 0) {
      splits -= 1;
      split_bytes -= swallowed;
    }
  }
  insert_free(id);
  const Block& block = blocks_[id];
  if (is_split(block)) {
    splits += 1;
    split_bytes += block.size;
  }
  if (block.expandable == kNoExpandable) {
    statistics_.inactive_splits.add(splits);
    statistics_.inactive_split_bytes.add(split_bytes);
  }
  statistics_.active_blocks.add(-1);
  statistics_.active_bytes.add(-size);
  statistics_.requested_bytes.add(-requested);
}

void CachingAllocator::reset_peaks() {
  for (Statistic* statistic :
       {&statistics_.allocated_bytes, &statistics_.active_bytes, &statistics_.reserved_bytes,
        &statistics_.requested_bytes, &statistics_.inactive_split_bytes, &statistics_.allocations,
        &statistics_.active_blocks, &statistics_.segments, &statistics_.inactive_splits,
        &statistics_.oversize_allocations, &statistics_.oversize_segments}) {
    statistic->peak = statistic->current;
  }
}

}  // namespace headroom::memory
