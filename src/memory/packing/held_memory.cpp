#include "memory/packing/held_memory.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace headroom::memory {
namespace {

constexpr int64_t kMostAddress = int64_t{1} << 62;

bool is_plausible(int64_t address, int64_t size) {
  return address >= 0 && address <= kMostAddress && size > 0 && size <= kMaxRequest;
}

class Rewinder {
 public:
  HeldMemory rewind(const Snapshot& snapshot) {
    const auto end = static_cast<int64_t>(snapshot.trace.size()) + 1;
    for (const SnapshotSegment& segment : snapshot.segments) {
      open(segment.address, segment.total_size, {0, end, segment.stream, segment.is_expandable});
    }
    for (int64_t time = end - 1; time > 0; --time) {
      const TraceEntry& entry = snapshot.trace[static_cast<size_t>(time - 1)];
      switch (entry.action) {
        case TraceAction::segment_alloc:
        case TraceAction::segment_map:
          begin(entry.address, entry.size, time);
          break;
        case TraceAction::segment_free:
        case TraceAction::segment_unmap:
          open(entry.address, entry.size,
               {0, time, entry.stream, entry.action == TraceAction::segment_unmap});
          break;
        default:
          break;
      }
    }
    for (const auto& [address, range] : open_) finish(address, range, 0);
    std::sort(held_.ranges.begin(), held_.ranges.end(), [](const HeldRange& a, const HeldRange& b) {
      return std::tie(a.lower, a.address) < std::tie(b.lower, b.address);
    });
    return std::move(held_);
  }

 private:
  struct Open {
    int64_t size = 0;
    int64_t upper = 0;
    int64_t stream = 0;
    bool is_expandable = false;
  };

  // The first open range that ends behind `address`.
  std::map<int64_t, Open>::iterator first_behind(int64_t address) {
    auto at = open_.upper_bound(address);
    if (at != open_.begin() && std::prev(at)->first + std::prev(at)->second.size > address) --at;
    return at;
  }

  void open(int64_t address, int64_t size, Open range) {
    const bool is_free =
        is_plausible(address, size) &&
        (first_behind(address) == open_.end() || first_behind(address)->first >= address + size);
    if (!is_free) {
      ++held_.contradictions;
      return;
    }
    range.size = size;
    open_.emplace(address, range);
  }

  // [address, address + size) was not held before `time`: what is open of it began there.
  void begin(int64_t address, int64_t size, int64_t time) {
    if (!is_plausible(address, size)) {
      ++held_.contradictions;
      return;
    }
    const int64_t end = address + size;
    int64_t covered = 0;
    for (auto at = first_behind(address); at != open_.end() && at->first < end;) {
      const auto [first, range] = *at;
      at = open_.erase(at);
      const int64_t from = std::max(first, address);
      const int64_t to = std::min(first + range.size, end);
      Open piece = range;
      piece.size = to - from;
      finish(from, piece, time);
      covered += piece.size;
      if (first < from) {
        piece.size = from - first;
        open_.emplace(first, piece);
      }
      if (to < first + range.size) {
        piece.size = first + range.size - to;
        at = open_.emplace(to, piece).first;
      }
    }
    if (covered != size) ++held_.contradictions;
  }

  void finish(int64_t address, const Open& range, int64_t lower) {
    if (lower >= range.upper) return;
    held_.ranges.push_back(
        {address, range.size, lower, range.upper, range.stream, range.is_expandable});
  }

  HeldMemory held_;
  std::map<int64_t, Open> open_;  // by address; they do not overlap
};

}  // namespace

HeldMemory held_memory(const Snapshot& snapshot) { return Rewinder().rewind(snapshot); }

}  // namespace headroom::memory
