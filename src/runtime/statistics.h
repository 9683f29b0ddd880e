// What torch.cuda.memory_stats() asks for, kept so that a planned request pays for little of it.
//
// A figure is what is there and the sum of what went; what came is their sum.
// Not thread-safe: REQUIRES the lock of device_allocator.h.
#pragma once

#include <algorithm>
#include <cstdint>

namespace headroom::runtime {

struct Figure {
  int64_t now = 0;
  int64_t went = 0;
  int64_t peak = 0;
  int64_t came_before = 0;  // the sums at the last reset_accumulated()
  int64_t went_before = 0;

  [[nodiscard]] int64_t current() const { return now; }
  [[nodiscard]] int64_t came() const { return now + went; }
  void add(int64_t amount) {
    now += amount;
    if (now > peak) [[unlikely]]
      peak = now;
  }
  void subtract(int64_t amount) {
    now -= amount;
    went += amount;
  }
  void reset_peak() { peak = now; }
  void reset_accumulated() {
    came_before = came();
    went_before = went;
  }
};

struct Statistics {
  Figure blocks;           // handed out
  Figure allocated_bytes;  // rounded up to 512
  Figure requested_bytes;  // as asked for
  Figure pending_blocks;   // released, awaiting events
  Figure pending_bytes;
  Figure reserved_bytes;
  Figure pieces;  // pages, or segments of cuMemAlloc
  // Highest sums of handed out and pending, where some were pending.
  int64_t active_peak_blocks = 0;
  int64_t active_peak_bytes = 0;
  int64_t free_peak_bytes = 0;  // inactive bytes, as they were when memory came or went
  int64_t free_peak_blocks = 0;
  int64_t retries = 0;
  int64_t out_of_memory = 0;
  int64_t synchronisations = 0;
  int64_t planned_requests = 0;
  int64_t reused_requests = 0;
  int64_t general_requests = 0;
  int64_t fallback_requests = 0;
  int64_t unknown_frees = 0;

  void begin_block(int64_t rounded, int64_t requested) {
    blocks.add(1);
    allocated_bytes.add(rounded);
    requested_bytes.add(requested);
    if (pending_blocks.current() > 0) [[unlikely]]
      note_active();
  }
  void end_block(int64_t rounded, int64_t requested) {
    blocks.subtract(1);
    allocated_bytes.subtract(rounded);
    requested_bytes.subtract(requested);
  }
  void note_active() {
    active_peak_blocks = std::max(active_peak_blocks, blocks.current() + pending_blocks.current());
    active_peak_bytes =
        std::max(active_peak_bytes, allocated_bytes.current() + pending_bytes.current());
  }
};

}  // namespace headroom::runtime
