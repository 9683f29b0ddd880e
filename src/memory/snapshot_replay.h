// Replaying a recorded snapshot: is the simulator exact?
//
// The state at the start of the trace is inferred (snapshot_start.h), the trace's requests are fed
// to a CachingAllocator, and everything it does is held against the record: the address of every
// allocation, every segment event in its order, and at the end every block of every segment.
//
// What a snapshot cannot tell is taken from the trace or from the options: the addresses of new
// segments (their segment_alloc and segment_map entries), the moment when the driver is out of
// memory (where the trace releases segments before it gets one), the moment when another stream's
// events complete (free_completed), the device's size and the memory fraction. Pure; linear in the
// trace but for the allocator's own cost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memory/caching_allocator.h"
#include "memory/replay.h"
#include "memory/snapshot.h"
#include "memory/snapshot_start.h"

namespace headroom::memory {

struct SnapshotReplayOptions {
  AllocatorSettings settings;
  int64_t device_total_bytes = 96 * kGiB;
};

// Where the simulator and the record part.
struct Divergence {
  size_t entry = 0;  // into the trace; its size for the end state
  std::string message;
  int64_t recorded = 0;  // address or size
  int64_t simulated = 0;
};

struct SnapshotReplay {
  size_t entries = 0;
  size_t allocations = 0;  // replayed
  size_t at_their_address = 0;
  size_t segment_events = 0;  // of the trace
  size_t segment_events_reproduced = 0;
  size_t blocks_at_end = 0;
  size_t skipped_entries = 0;  // of private pools
  size_t assumed_sizes = 0;    // blocks at the start whose size the file does not settle
  std::vector<Contradiction> contradictions;  // of the file with itself
  // The first one; the replay stops there, since all that follows would differ too.
  std::optional<Divergence> divergence;

  Peak peak_allocated;  // of the replayed window, by trace entry
  Peak peak_reserved;
  AllocatorStatistics statistics;

  // Every allocation at its address, every segment event and the end state reproduced.
  [[nodiscard]] bool is_exact() const;
};

[[nodiscard]] SnapshotReplay replay_snapshot(const Snapshot& snapshot,
                                             const SnapshotReplayOptions& options);

}  // namespace headroom::memory
