// The allocator's state as a whole: taking segments over, showing them, and checking the invariants
// of caching_allocator.h by their numbers.
#include <algorithm>
#include <string>

#include "base/check.h"
#include "memory/caching_allocator.h"

namespace headroom::memory {
namespace {

Error broken(int invariant, const std::string& message) {
  return Error{ErrorCode::bad_input, message, "invariant " + std::to_string(invariant), ""};
}

std::string at_address(int64_t address) { return "block at " + std::to_string(address); }

Error contradiction(const SegmentImage& image, size_t block, const std::string& message) {
  return Error{ErrorCode::bad_input, message,
               "segment " + std::to_string(image.address) + ", block " + std::to_string(block),
               "this cannot be a state of PyTorch's caching allocator"};
}

// The address and size bounds that keep all later sums inside int64.
Result<int64_t> checked_total(const SegmentImage& image) {
  int64_t total = 0;
  for (size_t i = 0; i < image.blocks.size(); ++i) {
    const BlockImage& block = image.blocks[i];
    if (block.size <= 0 || block.size > kMaxRequest || block.size % kMinBlockSize != 0) {
      return contradiction(
          image, i,
          "size " + std::to_string(block.size) + " is not a positive multiple of 512 bytes");
    }
    const bool is_active =
        block.state == BlockState::allocated || block.state == BlockState::pending;
    if (is_active && (block.requested < 0 || block.requested > block.size)) {
      return contradiction(image, i, "more was requested than the block holds");
    }
    if (i > 0 && !is_active && image.blocks[i - 1].state == block.state) {
      return contradiction(image, i, "two free neighbours that were not merged");
    }
    if (block.state == BlockState::unmapped && !image.is_expandable) {
      return contradiction(image, i, "unmapped memory outside an expandable segment");
    }
    const auto sum = checked_add(total, block.size);
    if (!sum || *sum > (int64_t{1} << 61)) return contradiction(image, i, "sizes overflow");
    total = *sum;
  }
  if (image.blocks.empty()) return contradiction(image, 0, "a segment without blocks");
  if (image.address < 0 || image.address > (int64_t{1} << 62)) {
    return contradiction(image, 0, "address out of range");
  }
  return total;
}

}  // namespace

Result<std::vector<BlockId>> CachingAllocator::adopt(const SegmentImage& image) {
  HEADROOM_ASSIGN(const int64_t total, checked_total(image));
  if (!image.is_expandable && image.is_small && total != kSmallBuffer) {
    return contradiction(image, 0, "a segment of the small pool that is not 2 MiB");
  }
  uint32_t expandable = kNoExpandable;
  if (image.is_expandable) {
    expandable = static_cast<uint32_t>(expandables_.size());
    const int64_t page = image.is_small ? kSmallBuffer : settings_.large_segment_size_bytes;
    int64_t offset = 0;
    for (size_t i = 0; i < image.blocks.size(); ++i) {
      const BlockImage& block = image.blocks[i];
      if (block.state == BlockState::unmapped && (offset % page != 0 || block.size % page != 0)) {
        return contradiction(image, i, "unmapped memory that is not whole pages");
      }
      offset += block.size;
    }
    if (total % page != 0) return contradiction(image, 0, "a reserved range of uneven pages");
    expandables_.push_back({image.address, total, page, true});
  }
  std::vector<BlockId> ids;
  ids.reserve(image.blocks.size());
  int64_t address = image.address;
  int64_t mapped = 0;
  for (const BlockImage& from : image.blocks) {
    const BlockId id = new_block();
    Block& block = blocks_[id];
    block.address = address;
    block.size = from.size;
    block.stream = image.stream;
    block.is_small = image.is_small;
    block.expandable = expandable;
    block.prev = ids.empty() ? kNoBlock : ids.back();
    block.state = from.state;
    block.held = from.state == BlockState::pending;
    if (!ids.empty()) blocks_[ids.back()].next = id;
    ids.push_back(id);
    address += from.size;
    if (from.state == BlockState::unmapped) {
      pool_of(block).unmapped.insert({0, block.address, id});
      continue;
    }
    mapped += from.size;
    if (from.state == BlockState::free) {
      insert_free(id);
      if (image.blocks.size() > 1 && !image.is_expandable) {
        statistics_.inactive_splits.add(1);
        statistics_.inactive_split_bytes.add(from.size);
      }
      continue;
    }
    block.requested = from.requested;
    statistics_.active_blocks.add(1);
    statistics_.active_bytes.add(from.size);
    statistics_.requested_bytes.add(from.requested);
    if (from.state == BlockState::pending) continue;
    statistics_.allocations.add(1);
    statistics_.allocated_bytes.add(from.size);
    if (from.size >= settings_.max_split_size_bytes) statistics_.oversize_allocations.add(1);
  }
  statistics_.reserved_bytes.add(mapped);
  if (!image.is_expandable) {
    statistics_.segments.add(1);
    if (total >= settings_.max_split_size_bytes) statistics_.oversize_segments.add(1);
  }
  return ids;
}

std::vector<SegmentImage> CachingAllocator::segments() const {
  std::vector<SegmentImage> images;
  for (BlockId first = 0; first < blocks_.size(); ++first) {
    const Block& head = blocks_[first];
    if (!head.in_use || head.prev != kNoBlock) continue;
    SegmentImage image{.address = head.address,
                       .stream = head.stream,
                       .is_small = head.is_small,
                       .is_expandable = head.expandable != kNoExpandable,
                       .blocks = {}};
    for (BlockId id = first; id != kNoBlock; id = blocks_[id].next) {
      image.blocks.push_back({blocks_[id].size, blocks_[id].requested, blocks_[id].state});
    }
    images.push_back(std::move(image));
  }
  std::sort(images.begin(), images.end(),
            [](const SegmentImage& a, const SegmentImage& b) { return a.address < b.address; });
  return images;
}

Result<void> CachingAllocator::check_block(BlockId id) const {
  const Block& block = blocks_[id];
  const std::string name = at_address(block.address);
  if (block.size <= 0 || block.size % kMinBlockSize != 0) return broken(4, name + ": odd size");
  if (block.requested > block.size) return broken(4, name + ": requested exceeds the block");
  if (block.next != kNoBlock) {
    const Block& next = blocks_[block.next];
    if (!next.in_use || next.prev != id || next.address != block.address + block.size) {
      return broken(1, name + ": its successor is not where it ends");
    }
    if (next.state == block.state &&
        (block.state == BlockState::free || block.state == BlockState::unmapped)) {
      return broken(2, name + ": free neighbours were not merged");
    }
    if (next.stream != block.stream || next.is_small != block.is_small ||
        next.expandable != block.expandable) {
      return broken(5, name + ": neighbours of different kinds");
    }
  }
  if (block.state == BlockState::unmapped) {
    if (block.expandable == kNoExpandable) return broken(7, name + ": unmapped in a plain segment");
    const Expandable& segment = expandables_[block.expandable];
    if ((block.address - segment.address) % segment.page != 0 || block.size % segment.page != 0) {
      return broken(7, name + ": unmapped, but not in whole pages");
    }
  }
  const bool waits = block.event_count > 0 || block.held;
  if (waits != (block.state == BlockState::pending)) {
    return broken(9, name + ": pending without an event, or an event without being pending");
  }
  return {};
}

Result<void> CachingAllocator::check_indexes() const {
  size_t indexed = 0;
  for (const auto& stream : streams_) {
    for (size_t small = 0; small < 2; ++small) {
      const Pool& pool = stream->pools[small];
      for (const bool unmapped : {false, true}) {
        const FreeIndex& index = unmapped ? pool.unmapped : pool.free;
        const BlockState wanted = unmapped ? BlockState::unmapped : BlockState::free;
        const FreeIndex::Entry* previous = nullptr;
        for (auto at = index.begin(); at != index.end(); at = index.next(at)) {
          const FreeIndex::Entry& entry = index.at(at);
          const Block& block = blocks_[entry.block];
          if (!block.in_use || block.state != wanted || block.address != entry.address ||
              entry.size != (unmapped ? 0 : block.size) || block.stream != stream->id ||
              block.is_small != (small == 1)) {
            return broken(3, at_address(entry.address) + ": its index entry disagrees with it");
          }
          if (previous != nullptr &&
              (entry.size < previous->size ||
               (entry.size == previous->size && entry.address <= previous->address))) {
            return broken(3, at_address(entry.address) + ": index out of order");
          }
          previous = &entry;
          ++indexed;
        }
      }
    }
  }
  const auto cached =
      static_cast<size_t>(std::count_if(blocks_.begin(), blocks_.end(), [](const Block& block) {
        return block.in_use &&
               (block.state == BlockState::free || block.state == BlockState::unmapped);
      }));
  if (cached != indexed) return broken(3, "a cached block is in no index, or in two");
  return {};
}

Result<void> CachingAllocator::check_segments() const {
  int64_t end_of_last = 0;
  for (const SegmentImage& image : segments()) {
    int64_t size = 0;
    for (const BlockImage& block : image.blocks) size += block.size;
    const std::string name = "segment at " + std::to_string(image.address);
    if (!image.is_expandable && image.is_small && size != kSmallBuffer) {
      return broken(6, name + ": small, but not 2 MiB");
    }
    if (image.is_expandable) {
      const auto owner =
          std::find_if(expandables_.begin(), expandables_.end(), [&](const Expandable& entry) {
            return entry.in_use && entry.address == image.address && entry.size == size;
          });
      if (owner == expandables_.end()) return broken(7, name + ": not its whole reserved range");
    }
    if (image.address < end_of_last) return broken(8, name + ": overlaps the one before");
    end_of_last = image.address + size;
  }
  return {};
}

Result<void> CachingAllocator::check_statistics() const {
  int64_t allocated = 0;
  int64_t active = 0;
  int64_t requested = 0;
  int64_t reserved = 0;
  int64_t inactive_split = 0;
  for (const Block& block : blocks_) {
    if (!block.in_use || block.state == BlockState::unmapped) continue;
    reserved += block.size;
    if (block.state == BlockState::free) {
      if (is_split(block) && block.expandable == kNoExpandable) inactive_split += block.size;
      continue;
    }
    active += block.size;
    requested += block.requested;
    if (block.state == BlockState::allocated) allocated += block.size;
  }
  if (allocated != statistics_.allocated_bytes.current) return broken(10, "allocated bytes");
  if (active != statistics_.active_bytes.current) return broken(10, "active bytes");
  if (requested != statistics_.requested_bytes.current) return broken(10, "requested bytes");
  if (reserved != statistics_.reserved_bytes.current) return broken(10, "reserved bytes");
  if (inactive_split != statistics_.inactive_split_bytes.current) {
    return broken(10, "inactive split bytes");
  }
  return {};
}

Result<void> CachingAllocator::check_invariants() const {
  for (BlockId id = 0; id < blocks_.size(); ++id) {
    if (blocks_[id].in_use) HEADROOM_TRY(check_block(id));
  }
  HEADROOM_TRY(check_indexes());
  HEADROOM_TRY(check_segments());
  return check_statistics();
}

}  // namespace headroom::memory
