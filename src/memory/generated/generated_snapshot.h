// What PyTorch would have recorded of a program (tests only): a MemoryTrace is run through the
// allocator simulator, and everything that a snapshot shows is written down.
//
// The stack of an entry is the label of its buffer. As in PyTorch, the release of a block that
// another stream uses is complete at the first request after that stream is done with it. Linear
// but for the allocator's own cost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "memory/allocator_settings.h"
#include "memory/events.h"
#include "memory/snapshot.h"

namespace headroom::memory::generated {

struct SnapshotOptions {
  AllocatorSettings settings{};
  size_t first_event = 0;  // of the trace: the recording begins here, in mid-run
  size_t last_event = std::numeric_limits<size_t>::max();
  size_t keep_entries = std::numeric_limits<size_t>::max();  // of a ring: the last ones stay
  // By buffer: events that its release takes; empty: none.
  std::vector<uint32_t> release_delay{};
};

struct GeneratedSnapshot {
  Snapshot snapshot;
  // The entry of each event's alloc or free_requested; kNotRecorded where there is none.
  std::vector<size_t> entry_of_event;
};
inline constexpr size_t kNotRecorded = std::numeric_limits<size_t>::max();

// Stream 0 has handle 0 as PyTorch's default stream, others large ones.
// REQUIRES: validate_trace(trace).
[[nodiscard]] GeneratedSnapshot record_snapshot(const MemoryTrace& trace,
                                                const SnapshotOptions& options);

}  // namespace headroom::memory::generated
