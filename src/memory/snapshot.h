// Snapshot: what a recording says of one device's caching allocator: its segments at the end, and
// the last of what happened before, oldest first.
//
// Plain data as a file gives it, not yet believed: snapshot_replay.h checks it. Sizes of alloc and
// free entries are what was requested; those of segment entries are real.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "memory/caching_allocator.h"

namespace headroom::memory {

enum class TraceAction : uint8_t {
  alloc,
  free_requested,
  free_completed,
  segment_alloc,
  segment_free,
  segment_map,
  segment_unmap,
  snapshot,       // the size is what was active at that moment
  out_of_memory,  // the address is the device's free memory, the size what was asked for (rounded)
  other,          // annotations and what newer versions may add; no effect
};

// The spelling of torch's `action`.
[[nodiscard]] std::string_view trace_action_name(TraceAction action);

struct TraceEntry {
  TraceAction action = TraceAction::other;
  int64_t address = 0;
  int64_t size = 0;
  int64_t stream = 0;   // torch's stream handle
  int64_t time_us = 0;  // 0 where the version has none
  uint32_t stack = 0;   // the reader's own id of a call stack
};

struct SnapshotBlock {
  int64_t address = 0;
  int64_t size = 0;
  int64_t requested = 0;
  BlockState state = BlockState::free;
  uint32_t stack = 0;
  // torch 2.0: the addresses and real sizes of what was allocated in this block before, newest
  // first.
  std::vector<std::pair<int64_t, int64_t>> history;
};

struct SnapshotSegment {
  int64_t address = 0;
  int64_t total_size = 0;
  int64_t allocated_size = 0;
  int64_t active_size = 0;
  int64_t stream = 0;
  int64_t pool_first = 0;  // segment_pool_id; (0, 0) outside of private pools
  int64_t pool_second = 0;
  bool is_small = false;
  bool is_expandable = false;
  uint32_t stack = 0;
  std::vector<SnapshotBlock> blocks;
};

struct Snapshot {
  int64_t device = 0;
  std::vector<SnapshotSegment> segments;
  std::vector<TraceEntry> trace;
};

}  // namespace headroom::memory
