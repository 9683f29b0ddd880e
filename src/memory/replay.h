// Replaying a MemoryTrace through the caching allocator: the peaks, where they are, what they are
// made of, and whether memory runs out on the way.
//
// `replay` is a pure function of its arguments (and of the source's state); 100 to 200 ns an event.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "memory/caching_allocator.h"
#include "memory/events.h"

namespace headroom::memory {

using CategoryBytes = std::array<int64_t, kCategoryCount>;

// A highest value and the first event after which it stood.
struct Peak {
  int64_t bytes = 0;
  size_t event = 0;
};

// The memory after one event. Of each stretch of events that a downsampled timeline merges, the
// point with the most allocated memory is kept, so the peak is never lost.
struct TimelinePoint {
  size_t event = 0;
  CategoryBytes allocated_bytes{};  // block sizes; their sum is what torch calls allocated
  int64_t reserved_bytes = 0;
};

struct ReplayOptions {
  size_t timeline_points = 0;  // 0: no timeline
};

struct ReplayOutOfMemory {
  size_t event = 0;
  OutOfMemory details;
};

struct ReplayResult {
  Peak peak_allocated;
  Peak peak_reserved;
  Peak peak_requested;
  Peak peak_active;
  CategoryBytes at_peak_allocated{};  // block sizes by category, at peak_allocated.event
  AllocatorStatistics statistics;     // at the end, or where memory ran out
  std::optional<ReplayOutOfMemory> out_of_memory;  // the replay stops there
  std::vector<TimelinePoint> timeline;
};

// Buffers of zero bytes take no memory, as in PyTorch. Releases need no other stream's events.
// REQUIRES: validate_trace(trace).
[[nodiscard]] ReplayResult replay(const MemoryTrace& trace, const AllocatorSettings& settings,
                                  SegmentSource& source, const ReplayOptions& options = {});

}  // namespace headroom::memory
