#include "memory/best_fit_arena.h"

#include <algorithm>

#include "base/check.h"
#include "base/units.h"
#include "memory/allocator_settings.h"

namespace headroom::memory {
namespace {

constexpr int64_t kPage = 2 * kMiB;
constexpr int64_t kMostBudget = int64_t{1} << 60;
constexpr int64_t kBetweenRanges = kMostBudget;  // no range grows into the next
constexpr int64_t kMostRanges = 6;               // that have addresses of their own

}  // namespace

BestFitArena::BestFitArena(int64_t budget) : budget_(budget) {
  HEADROOM_CHECK(budget > 0 && budget <= kMostBudget, "an arena of no size, or of any");
}

// With more streams than address space, ranges share addresses; their figures stay right.
BestFitArena::Range& BestFitArena::range_of(uint32_t stream) {
  const auto [at, is_new] = ranges_.try_emplace(stream);
  if (is_new)
    at->second.base = static_cast<int64_t>(ranges_.size() - 1) % kMostRanges * kBetweenRanges;
  return at->second;
}

void BestFitArena::insert(Range& range, int64_t offset, int64_t size) {
  auto after = range.free.lower_bound(offset);
  if (after != range.free.end() && after->first == offset + size) {
    size += after->second;
    erase(range, after);
  }
  auto before = range.free.lower_bound(offset);
  if (before != range.free.begin() &&
      std::prev(before)->first + std::prev(before)->second == offset) {
    --before;
    offset = before->first;
    size += before->second;
    erase(range, before);
  }
  range.free.emplace(offset, size);
  range.by_size.emplace(size, offset);
}

void BestFitArena::erase(Range& range, std::map<int64_t, int64_t>::iterator at) {
  range.by_size.erase({at->second, at->first});
  range.free.erase(at);
}

// Enough pages behind the end for a block of `size` that begins in what is free there.
bool BestFitArena::grow(Range& range, int64_t size) {
  int64_t tail = 0;
  if (!range.free.empty()) {
    const auto& [offset, free] = *range.free.rbegin();
    if (offset + free == range.end) tail = free;
  }
  const int64_t more = round_up(size - tail, kPage);
  if (more > budget_ - reserved_) return false;
  insert(range, range.end, more);
  range.end += more;
  reserved_ += more;
  return true;
}

std::optional<BestFitArena::Block> BestFitArena::allocate(int64_t bytes, uint32_t stream) {
  HEADROOM_CHECK(bytes >= 0 && bytes <= kMaxRequest, "a request out of range");
  const int64_t size = rounded_size({}, bytes);
  Range& range = range_of(stream);
  auto best = range.by_size.lower_bound({size, 0});
  if (best == range.by_size.end()) {
    if (!grow(range, size)) return std::nullopt;
    best = range.by_size.lower_bound({size, 0});
  }
  const auto [free, offset] = *best;
  erase(range, range.free.find(offset));
  if (free > size) insert(range, offset + size, free - size);
  uint64_t handle = taken_.size();
  if (vacant_.empty()) {
    taken_.emplace_back();
  } else {
    handle = vacant_.back();
    vacant_.pop_back();
  }
  taken_[handle] = {offset, size, bytes, stream};
  allocated_ += size;
  requested_ += bytes;
  return Block{handle, range.base + offset, size};
}

void BestFitArena::free(uint64_t handle) {
  HEADROOM_CHECK(handle < taken_.size() && taken_[handle].size > 0,
                 "a block that is not allocated");
  const Taken taken = taken_[handle];
  taken_[handle].size = 0;
  vacant_.push_back(handle);
  allocated_ -= taken.size;
  requested_ -= taken.requested;
  insert(range_of(taken.stream), taken.offset, taken.size);
}

void BestFitArena::empty_cache() {
  for (auto& [stream, range] : ranges_) {
    if (range.free.empty()) continue;
    const auto last = std::prev(range.free.end());
    const auto [offset, free] = *last;
    if (offset + free != range.end) continue;
    const int64_t kept = round_up(offset, kPage);
    if (kept >= range.end) continue;
    erase(range, last);
    if (kept > offset) insert(range, offset, kept - offset);
    reserved_ -= range.end - kept;
    range.end = kept;
  }
}

std::vector<std::pair<int64_t, int64_t>> BestFitArena::held() const {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (const auto& [stream, range] : ranges_) {
    if (range.end > 0) ranges.emplace_back(range.base, range.end);
  }
  return ranges;
}

std::optional<int64_t> best_fit_peak_bytes(const MemoryTrace& trace) {
  BestFitArena arena(kMostBudget);
  constexpr uint64_t kNone = ~uint64_t{0};
  std::vector<uint64_t> handles(trace.buffers.size(), kNone);
  for (const MemoryEvent& event : trace.events) {
    const BufferInfo& buffer = trace.buffers[event.buffer];
    if (buffer.requested_bytes == 0) continue;
    if (event.kind == EventKind::free) {
      arena.free(handles[event.buffer]);
      continue;
    }
    const auto block = arena.allocate(buffer.requested_bytes, buffer.stream);
    if (!block) return std::nullopt;
    handles[event.buffer] = block->handle;
  }
  return arena.reserved_bytes();
}

}  // namespace headroom::memory
