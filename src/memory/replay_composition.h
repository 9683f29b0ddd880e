// What was live when, from the sizes of a replay's blocks: the second pass of replay.h and
// planned_replay.h. Linear in the events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/replay.h"

namespace headroom::memory {

// Bytes by category after each event that was applied.
class Composition {
 public:
  Composition(const MemoryTrace& trace, const std::vector<int64_t>& block_sizes)
      : trace_(trace), block_sizes_(block_sizes) {}

  void apply(size_t event_index) {
    const MemoryEvent& event = trace_.events[event_index];
    const int64_t size = block_sizes_[event.buffer];
    const int64_t change = event.kind == EventKind::alloc ? size : -size;
    bytes_[static_cast<size_t>(trace_.buffers[event.buffer].category)] += change;
    total_ += change;
  }
  [[nodiscard]] const CategoryBytes& bytes() const { return bytes_; }
  [[nodiscard]] int64_t total() const { return total_; }

 private:
  const MemoryTrace& trace_;
  const std::vector<int64_t>& block_sizes_;
  CategoryBytes bytes_{};
  int64_t total_ = 0;
};

// What is reserved from an event on.
struct ReservedChange {
  size_t event = 0;
  int64_t bytes = 0;
};

// At most `points` (and one) of the first `event_count` events. REQUIRES: points > 0; `reserved` in
// the order of its events.
std::vector<TimelinePoint> make_timeline(const MemoryTrace& trace, size_t event_count,
                                         const std::vector<int64_t>& block_sizes,
                                         const std::vector<ReservedChange>& reserved,
                                         size_t points);

}  // namespace headroom::memory
