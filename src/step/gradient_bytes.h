// For tests: what the gradients of a step take, all together.
#pragma once

#include <cstdint>

#include "step/trace.h"

namespace headroom::step {

inline int64_t gradient_bytes(const StepTrace& trace) {
  int64_t bytes = 0;
  for (const memory::BufferInfo& buffer : trace.memory.buffers) {
    if (buffer.category == memory::Category::gradient) bytes += buffer.requested_bytes;
  }
  return bytes;
}

}  // namespace headroom::step
