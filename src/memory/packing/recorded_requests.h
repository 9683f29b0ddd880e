// The requests of a recorded snapshot with their lifetimes: what a plan is made from.
//
// A recording mostly starts in mid-run: what is released without having been allocated lived from
// the start, and what is never released lives to the end. A block lives until its release is
// complete, that is, until no stream uses it any more. Every stream's blocks are planned apart,
// since a snapshot records no synchronisation between streams. Plain data as the file gives it, so
// nothing is believed: what contradicts itself is counted and passed over. O(n log n). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/snapshot.h"

namespace headroom::memory {

struct RecordedRequest {
  int64_t lower = 0;  // index of its entry in the trace, plus 1; 0: it was there at the start
  int64_t upper = 0;  // of the entry that ends it, or one past the last where none does
  int64_t size = 0;   // as requested
  int64_t stream = 0;
  int64_t address = 0;
  // When the program gave it back; `upper` is when no stream used it any more. Equal where the
  // recording has only the one, or where one follows the other at once.
  int64_t released = 0;
};

struct RecordedRequests {
  std::vector<RecordedRequest> requests;  // by lower, then address
  size_t at_start = 0;                    // of them, those that were there at the start
  size_t contradictions = 0;              // entries passed over
};

[[nodiscard]] RecordedRequests recorded_requests(const Snapshot& snapshot);

// What the allocator held over the recorded time, from the segments and their entries; allocated
// bytes are sums of blocks, where sizes that are not recorded are taken as `settings` round them.
struct RecordedPeaks {
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;
};
[[nodiscard]] RecordedPeaks recorded_peaks(const Snapshot& snapshot,
                                           const AllocatorSettings& settings);

}  // namespace headroom::memory
