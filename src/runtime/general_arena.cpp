#include "runtime/general_arena.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/units.h"

namespace headroom::runtime {

uint32_t GeneralArena::range_of(uint32_t pool, CudaStream* stream, int64_t size) {
  const bool is_small = size <= kMostSmall;
  for (uint32_t i = 0; i < ranges_.size(); ++i) {
    const Range& range = *ranges_[i];
    const bool is_it = range.stream == stream && range.is_small == is_small && range.pool == pool;
    if (is_it && !range.is_vacant) return i;
  }
  const auto vacant = std::find_if(ranges_.begin(), ranges_.end(),
                                   [](const auto& range) { return range->is_vacant; });
  const auto number = static_cast<uint32_t>(vacant - ranges_.begin());
  if (vacant == ranges_.end()) ranges_.emplace_back();
  ranges_[number] = std::make_unique<Range>();
  ranges_[number]->pool = pool;
  ranges_[number]->stream = stream;
  ranges_[number]->is_small = is_small;
  ranges_[number]->is_kept = pool != kGeneralPool;
  return number;
}

uint32_t GeneralArena::new_block() {
  if (!vacant_.empty()) {
    const uint32_t number = vacant_.back();
    vacant_.pop_back();
    return number;
  }
  blocks_.emplace_back();
  return static_cast<uint32_t>(blocks_.size() - 1);
}

void GeneralArena::drop(uint32_t number) {
  blocks_[number] = {};
  vacant_.push_back(number);
}

void GeneralArena::insert_free(uint32_t number) {
  const Block& block = blocks_[number];
  Range& range = *ranges_[segments_[block.segment].range];
  range.free.insert({block.size, block.address, number});
  range.free_bytes += block.size;
  free_bytes_ += block.size;
}

void GeneralArena::erase_free(uint32_t number) {
  const Block& block = blocks_[number];
  Range& range = *ranges_[segments_[block.segment].range];
  range.free.erase(block.size, block.address);
  range.free_bytes -= block.size;
  free_bytes_ -= block.size;
}

// The rest behind `size` becomes a block of its own, in no index; its number.
uint32_t GeneralArena::split(uint32_t number, int64_t size) {
  const uint32_t rest = new_block();
  Block& first = blocks_[number];
  Block& second = blocks_[rest];
  second.address = first.address + size;
  second.size = first.size - size;
  second.segment = first.segment;
  second.state = first.state;
  second.previous = number;
  second.next = first.next;
  if (first.next != kNoNumber) blocks_[first.next].previous = rest;
  first.next = rest;
  first.size = size;
  return rest;
}

void GeneralArena::join_next(uint32_t number) {
  Block& block = blocks_[number];
  const uint32_t next = block.next;
  block.size += blocks_[next].size;
  block.next = blocks_[next].next;
  if (block.next != kNoNumber) blocks_[block.next].previous = number;
  drop(next);
}

// Makes a block free or unmapped, joined with neighbours that are the same.
uint32_t GeneralArena::settle(uint32_t number, BlockState state) {
  blocks_[number].state = state;
  blocks_[number].requested = 0;
  blocks_[number].has_uses = false;
  const uint32_t next = blocks_[number].next;
  if (is(next, state)) {
    if (state == BlockState::free) erase_free(next);
    join_next(number);
  }
  const uint32_t previous = blocks_[number].previous;
  if (is(previous, state)) {
    if (state == BlockState::free) erase_free(previous);
    join_next(previous);
    number = previous;
  }
  if (state == BlockState::free) insert_free(number);
  return number;
}

// The smallest that is large enough. One with unmapped space behind it counts as large as it may
// become: it is left for what is large, unless there is no other (among so many that are looked
// at).
uint32_t GeneralArena::best_fit(const Range& range, int64_t size) const {
  constexpr int kMostLookedAt = 16;
  const memory::FreeIndex& free = range.free;
  const auto smallest = free.lower_bound(size, 0);
  auto at = smallest;
  for (int i = 0; i < kMostLookedAt && at != free.end(); ++i, at = free.next(at)) {
    const uint32_t number = free.at(at).block;
    if (!is(blocks_[number].next, BlockState::unmapped)) return number;
  }
  return smallest == free.end() ? kNoNumber : free.at(smallest).block;
}

uint32_t GeneralArena::take(uint32_t range, int64_t size) {
  const uint32_t number = best_fit(*ranges_[range], size);
  if (number == kNoNumber) return kNoNumber;
  erase_free(number);
  if (blocks_[number].size > size) {
    const uint32_t rest = split(number, size);
    insert_free(rest);
  }
  blocks_[number].state = BlockState::live;
  return number;
}

void GeneralArena::give(uint32_t block) { settle(block, BlockState::free); }

void GeneralArena::add_segment(uint32_t range, int64_t address, int64_t bytes, bool is_paged) {
  const auto vacant = std::find_if(segments_.begin(), segments_.end(),
                                   [](const Segment& segment) { return !segment.is_in_use; });
  const auto index = static_cast<uint32_t>(vacant - segments_.begin());
  if (vacant == segments_.end()) segments_.emplace_back();
  const uint32_t number = new_block();
  segments_[index] = {address, bytes, range, number, is_paged, true};
  ranges_[range]->segments.push_back(index);
  Block& block = blocks_[number];
  block.address = address;
  block.size = bytes;
  block.segment = index;
  block.state = is_paged ? BlockState::unmapped : BlockState::free;
  if (!is_paged) insert_free(number);
}

// Of all unmapped blocks, the one where the fewest pages make room, with what is free on both
// sides; the lowest of those.
std::optional<GeneralArena::Growth> GeneralArena::begin_growth(uint32_t range, int64_t size,
                                                               uint32_t but_not) {
  struct Place {
    uint32_t block = kNoNumber;
    int64_t pages_bytes = 0;
    bool takes_before = false;
    bool takes_after = false;
  } best;
  for (const uint32_t segment : ranges_[range]->segments) {
    if (segment == but_not || segments_[segment].is_avoided) continue;
    for (uint32_t i = segments_[segment].first; i != kNoNumber; i = blocks_[i].next) {
      if (!is(i, BlockState::unmapped)) continue;
      const Block& gap = blocks_[i];
      const int64_t before = is(gap.previous, BlockState::free) ? blocks_[gap.previous].size : 0;
      const int64_t after = is(gap.next, BlockState::free) ? blocks_[gap.next].size : 0;
      int64_t pages = round_up(size - before, page_bytes_);
      bool takes_after = false;
      if (pages > gap.size) {
        if (before + gap.size + after < size) continue;
        pages = gap.size;
        takes_after = true;
      }
      if (best.block == kNoNumber || pages < best.pages_bytes) {
        best = {i, pages, before > 0, takes_after};
      }
    }
  }
  if (best.block == kNoNumber) return std::nullopt;
  HEADROOM_CHECK(best.pages_bytes > 0, "a growth although there is room");
  uint32_t number = best.block;
  if (blocks_[number].size > best.pages_bytes) split(number, best.pages_bytes);
  const Growth growth{number, blocks_[number].address, best.pages_bytes};
  blocks_[number].state = BlockState::moving;
  Growth moving = growth;
  if (best.takes_after) {
    erase_free(blocks_[number].next);
    join_next(number);
  }
  if (best.takes_before) {
    const uint32_t previous = blocks_[number].previous;
    erase_free(previous);
    blocks_[previous].state = BlockState::moving;
    join_next(previous);
    moving.block = previous;
  }
  return moving;
}

uint32_t GeneralArena::commit_growth(const Growth& growth, int64_t size) {
  if (blocks_[growth.block].size > size) {
    const uint32_t rest = split(growth.block, size);
    settle(rest, BlockState::free);
  }
  blocks_[growth.block].state = BlockState::live;
  return growth.block;
}

void GeneralArena::abort_growth(const Growth& growth) {
  const uint32_t number = growth.block;
  uint32_t pages = number;
  if (blocks_[number].address < growth.address) {
    pages = split(number, growth.address - blocks_[number].address);
  }
  if (blocks_[pages].size > growth.bytes) {
    const uint32_t after = split(pages, growth.bytes);
    settle(after, BlockState::free);
  }
  settle(pages, BlockState::unmapped);
  if (pages != number) settle(number, BlockState::free);
}

GeneralArena::Piece GeneralArena::whole_pages(const Block& block) const {
  const int64_t base = segments_[block.segment].address;
  const int64_t begin = base + round_up(block.address - base, page_bytes_);
  const int64_t end = base + (block.address + block.size - base) / page_bytes_ * page_bytes_;
  return {begin, std::max<int64_t>(end - begin, 0), segments_[block.segment].range};
}

void GeneralArena::collect_pages_of(Range& range, int64_t& keep, std::vector<Piece>& pieces) {
  for (const uint32_t segment : range.segments) {
    if (!segments_[segment].is_paged) continue;
    for (uint32_t i = segments_[segment].first; i != kNoNumber; i = blocks_[i].next) {
      if (!is(i, BlockState::free)) continue;
      const Piece piece = whole_pages(blocks_[i]);
      if (piece.bytes == 0) continue;
      if (keep >= piece.bytes) {
        keep -= piece.bytes;
        continue;
      }
      erase_free(i);
      uint32_t pages = i;
      if (piece.address > blocks_[i].address) {
        pages = split(i, piece.address - blocks_[i].address);
        insert_free(i);
      }
      if (blocks_[pages].size > piece.bytes) insert_free(split(pages, piece.bytes));
      i = settle(pages, BlockState::unmapped);
      pieces.push_back(piece);
    }
  }
}

std::vector<GeneralArena::Piece> GeneralArena::collect_pages(int64_t keep) {
  std::vector<Piece> pieces;
  for (const auto& range : ranges_) {
    if (!range->is_kept) collect_pages_of(*range, keep, pieces);
  }
  return pieces;
}

std::vector<GeneralArena::Piece> GeneralArena::collect_released_pages() {
  std::vector<Piece> pieces;
  int64_t keep = 0;
  for (const auto& range : ranges_) {
    if (range->is_released) collect_pages_of(*range, keep, pieces);
  }
  return pieces;
}

void GeneralArena::restore(const std::vector<Piece>& pieces) {
  for (const Piece& piece : pieces) {
    for (const Segment& segment : segments_) {
      if (!segment.is_in_use || piece.address < segment.address ||
          piece.address >= segment.address + segment.bytes) {
        continue;
      }
      uint32_t i = segment.first;
      while (blocks_[i].address + blocks_[i].size <= piece.address) i = blocks_[i].next;
      if (blocks_[i].address < piece.address) i = split(i, piece.address - blocks_[i].address);
      if (blocks_[i].size > piece.bytes) split(i, piece.bytes);
      settle(i, BlockState::free);
    }
  }
}

void GeneralArena::collect_segments_of(Range& range, std::vector<Piece>& pieces) {
  std::erase_if(range.segments, [&](uint32_t index) {
    Segment& segment = segments_[index];
    const uint32_t first = segment.first;
    const bool is_empty =
        !segment.is_paged && is(first, BlockState::free) && blocks_[first].size == segment.bytes;
    if (is_empty) {
      pieces.push_back({segment.address, segment.bytes, segment.range});
      erase_free(first);
      drop(first);
      segment.is_in_use = false;
    }
    return is_empty;
  });
}

std::vector<GeneralArena::Piece> GeneralArena::collect_segments() {
  std::vector<Piece> pieces;
  for (const auto& range : ranges_) {
    if (!range->is_kept) collect_segments_of(*range, pieces);
  }
  return pieces;
}

std::vector<GeneralArena::Piece> GeneralArena::collect_released_segments() {
  std::vector<Piece> pieces;
  for (const auto& range : ranges_) {
    if (range->is_released) collect_segments_of(*range, pieces);
  }
  return pieces;
}

void GeneralArena::release_pool(uint32_t pool) {
  for (const auto& range : ranges_) {
    if (range->pool != pool || range->is_vacant) continue;
    range->is_kept = false;
    range->is_released = true;
  }
}

bool GeneralArena::is_last_of_released(uint32_t block) const {
  const Range& range = *ranges_[segments_[blocks_[block].segment].range];
  if (!range.is_released) return false;
  for (const uint32_t segment : range.segments) {
    for (uint32_t i = segments_[segment].first; i != kNoNumber; i = blocks_[i].next) {
      if (i != block && !is(i, BlockState::free) && !is(i, BlockState::unmapped)) return false;
    }
  }
  return true;
}

bool GeneralArena::drop_pool(uint32_t pool, std::vector<Piece>& spans) {
  const auto has_memory = [&](uint32_t segment) {
    return !is(segments_[segment].first, BlockState::unmapped) ||
           blocks_[segments_[segment].first].size != segments_[segment].bytes;
  };
  bool is_dropped = true;
  for (uint32_t number = 0; number < ranges_.size(); ++number) {
    Range& range = *ranges_[number];
    if (range.pool != pool || range.is_vacant) continue;
    if (std::any_of(range.segments.begin(), range.segments.end(), has_memory)) {
      is_dropped = false;
      continue;
    }
    for (const uint32_t index : range.segments) {
      Segment& segment = segments_[index];
      spans.push_back({segment.address, segment.bytes, number});
      drop(segment.first);
      segment.is_in_use = false;
    }
    range.segments.clear();
    range.is_vacant = true;
    range.is_released = false;
  }
  return is_dropped;
}

int64_t GeneralArena::free_blocks() const {
  int64_t count = 0;
  for (const auto& range : ranges_) count += static_cast<int64_t>(range->free.size());
  return count;
}

int64_t GeneralArena::largest_free_block() const {
  int64_t largest = 0;
  for (const auto& range : ranges_) {
    const memory::FreeIndex& free = range->free;
    if (free.empty()) continue;
    largest = std::max(largest, free.at(free.previous(free.end())).size);
  }
  return largest;
}

int64_t GeneralArena::collectable_bytes() const {
  int64_t bytes = 0;
  for (const auto& range : ranges_) {
    if (range->is_kept) continue;
    for (auto at = range->free.lower_bound(page_bytes_, 0); at != range->free.end();
         at = range->free.next(at)) {
      const Block& block = blocks_[range->free.at(at).block];
      if (segments_[block.segment].is_paged) bytes += whole_pages(block).bytes;
    }
  }
  return bytes;
}

Result<void> GeneralArena::check() const {
  const auto broken = [](int number, const char* what) {
    return Error{ErrorCode::bad_input, what, "invariant " + std::to_string(number), {}};
  };
  size_t free_blocks = 0;
  int64_t free_bytes = 0;
  for (const Segment& segment : segments_) {
    if (!segment.is_in_use) continue;
    int64_t at = segment.address;
    uint32_t before = kNoNumber;
    for (uint32_t i = segment.first; i != kNoNumber; before = i, i = blocks_[i].next) {
      const Block& block = blocks_[i];
      if (block.address != at || block.previous != before || block.size <= 0) {
        return broken(1, "blocks do not tile their segment");
      }
      at += block.size;
      const bool settles = block.state == BlockState::free || block.state == BlockState::unmapped;
      if (settles && is(before, block.state)) return broken(1, "neighbours that should be one");
      if (block.address % kAlignment != 0 || block.size % kAlignment != 0) {
        return broken(4, "a block that is not aligned");
      }
      if (block.state == BlockState::vacant) return broken(1, "a vacant block in a segment");
      if (block.state == BlockState::unmapped &&
          ((block.address - segment.address) % page_bytes_ != 0 || block.size % page_bytes_ != 0)) {
        return broken(3, "an unmapped block that is not of pages");
      }
      if (block.state != BlockState::free) continue;
      ++free_blocks;
      free_bytes += block.size;
      const memory::FreeIndex& index = ranges_[segment.range]->free;
      const auto found = index.lower_bound(block.size, block.address);
      if (found == index.end() || index.at(found).block != i) {
        return broken(2, "a free block that is not in its index");
      }
    }
    if (at != segment.address + segment.bytes) return broken(1, "a segment with a hole");
  }
  size_t indexed = 0;
  for (const auto& range : ranges_) indexed += range->free.size();
  if (indexed != free_blocks) return broken(2, "an index with more than the free blocks");
  if (free_bytes != free_bytes_) return broken(2, "free bytes are not the sum");
  return {};
}

}  // namespace headroom::runtime
