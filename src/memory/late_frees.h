// When blocks that another stream uses come back (Tensor.record_stream()): not at their free event
// but once the program knows that the stream is past it, or has waited for all streams to empty its
// cache. What replays under a plan need to know beforehand; replay.h finds it on its way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/events.h"

namespace headroom::memory {

// A block that comes back before event `event`: behind the last one, where it never does.
struct LateFree {
  uint32_t buffer = 0;
  size_t event = 0;
  bool operator==(const LateFree&) const = default;
};

// In the order in which they come back. Buffers of zero bytes have no block. Linear.
// REQUIRES: validate_trace(trace).
[[nodiscard]] std::vector<LateFree> late_frees(const MemoryTrace& trace);

}  // namespace headroom::memory
