// What the allocator held from the driver over the recorded time: one range for each segment, or
// piece of an expandable segment, with the time in which it was held.
//
// Played backwards from the end state, as the beginning of a recording is mostly missing. Times are
// those of recorded_requests.h: a range is held at lower <= t < upper, and time i + 1 is after
// entry i of the trace. Entries that contradict the rest are counted and passed over. O(n log n) in
// segments and entries; pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/snapshot.h"

namespace headroom::memory {

struct HeldRange {
  int64_t address = 0;
  int64_t size = 0;
  int64_t lower = 0;
  int64_t upper = 0;
  int64_t stream = 0;
  bool is_expandable = false;
};

struct HeldMemory {
  std::vector<HeldRange> ranges;  // by lower, then address
  size_t contradictions = 0;
};

[[nodiscard]] HeldMemory held_memory(const Snapshot& snapshot);

}  // namespace headroom::memory
