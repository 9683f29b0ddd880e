// For tests: the bytes that are still there when a trace is over.
#pragma once

#include <cstdint>
#include <vector>

#include "step/trace.h"

namespace headroom::step {

// Of the buffers that `counts` (const memory::BufferInfo& to bool) says yes to.
template <typename Counts>
int64_t bytes_at_end(const StepTrace& trace, Counts counts) {
  std::vector<bool> lives(trace.memory.buffers.size());
  for (const memory::MemoryEvent& event : trace.memory.events) {
    if (event.kind == memory::EventKind::alloc) lives[event.buffer] = true;
    if (event.kind == memory::EventKind::free) lives[event.buffer] = false;
  }
  int64_t bytes = 0;
  for (size_t i = 0; i < lives.size(); ++i) {
    const memory::BufferInfo& info = trace.memory.buffers[i];
    if (lives[i] && counts(info)) bytes += info.requested_bytes;
  }
  return bytes;
}

inline int64_t bytes_at_end(const StepTrace& trace) {
  return bytes_at_end(trace, [](const memory::BufferInfo&) { return true; });
}

}  // namespace headroom::step
