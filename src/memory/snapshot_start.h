// Inferring the allocator's state at the start of a recorded trace.
//
// A snapshot shows the end state and the last events before it. Played backwards, the events lead
// from the end to the start; where an event contradicts what comes after it, the file contradicts
// itself, and the place is reported. O(n log n) in entries and blocks. Pure.
//
// What is inferred, and what it rests on:
//  - A block that lives on to the end has its size in the end state.
//  - A block that is released in the trace without being allocated in it has a known address and
//    requested size. Its block may be larger by a remainder that was not split off (up to 1 MiB in
//    the large pool). It is, where the gap behind it is too small for a block of its own; and where
//    the first allocation into that gap shows where the gap begins. Otherwise it is taken to be its
//    rounded size, and counted in `assumed_sizes`.
//  - Everything else in a segment was free, and free neighbours are one block.
//  - The trace does not begin between a new segment and its first block. (With a max_split_size
//  such a
//    segment would look like a cached one, which serves fewer requests; else it makes no
//    difference.)
//  - An expandable segment's address space begins at the lowest address that is seen of its stream
//    and pool, and extends over 9/8 of the device's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "memory/caching_allocator.h"
#include "memory/snapshot.h"

namespace headroom::memory {

// Where a snapshot cannot be true.
struct Contradiction {
  static constexpr size_t kEndState = static_cast<size_t>(-1);
  size_t entry = kEndState;  // index into the trace
  int64_t address = 0;
  std::string message;
};

struct StartState {
  std::vector<SegmentImage> segments;
  std::vector<int64_t> streams;  // ascending handles; SegmentImage::stream is an index here
  std::vector<bool> skipped;     // by trace entry: of a private pool (CUDA graphs), not replayed
  std::vector<Contradiction> contradictions;
  size_t assumed_sizes = 0;
};

// The index of a stream handle in `streams`. REQUIRES: it is there.
[[nodiscard]] uint32_t stream_index(const std::vector<int64_t>& streams, int64_t handle);

// `device_total_bytes` only matters for expandable segments.
[[nodiscard]] StartState infer_start(const Snapshot& snapshot, const AllocatorSettings& settings,
                                     int64_t device_total_bytes);

}  // namespace headroom::memory
