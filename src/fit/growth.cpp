#include "fit/growth.h"

#include <algorithm>

namespace headroom::fit {

namespace {

constexpr double kGrowthMax = 1e9;  // nothing grows: any size would do

bool grows(memory::Category category) {
  using memory::Category;
  switch (category) {
    case Category::activation:
    case Category::temporary:
    case Category::logits:
    case Category::loss:
    case Category::input:
      return true;
    default:
      return false;
  }
}

bool makes_activations(step::Phase phase) {
  using step::Phase;
  return phase == Phase::input || phase == Phase::forward || phase == Phase::loss ||
         phase == Phase::backward;
}

}  // namespace

double growth_until(const step::StepTrace& trace, Bytes limit) {
  std::vector<bool> growing(trace.memory.buffers.size());
  int64_t fixed = 0;
  int64_t grown = 0;
  double growth = kGrowthMax;
  size_t next_phase = 0;
  bool in_pass = false;  // forward or backward
  for (size_t i = 0; i < trace.memory.events.size(); ++i) {
    while (next_phase < trace.phases.size() && trace.phases[next_phase].first_event <= i) {
      in_pass = makes_activations(trace.phases[next_phase++].phase);
    }
    const memory::MemoryEvent& event = trace.memory.events[i];
    const memory::BufferInfo& buffer = trace.memory.buffers[event.buffer];
    const int64_t bytes = buffer.requested_bytes;
    if (event.kind == memory::EventKind::free) {
      (growing[event.buffer] ? grown : fixed) -= bytes;
      continue;
    }
    growing[event.buffer] = in_pass && grows(buffer.category);
    (growing[event.buffer] ? grown : fixed) += bytes;
    const int64_t room = limit.count - fixed;
    if (room < 0) return 0;
    if (grown == 0) continue;
    growth = std::min(growth, static_cast<double>(room) / static_cast<double>(grown));
  }
  return growth;
}

Bytes unused_at_most(const memory::ReplayResult& replay) {
  return Bytes(std::max<int64_t>(0, replay.peak_reserved.bytes - replay.peak_allocated.bytes));
}

}  // namespace headroom::fit
