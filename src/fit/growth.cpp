#include "fit/growth.h"

#include <algorithm>

namespace headroom::fit {

namespace {

constexpr double kGrowthMax = 1e9;  // nothing grows: any size would do

constexpr uint32_t bit_of(memory::Category category) {
  return uint32_t{1} << static_cast<uint32_t>(category);
}

bool grows(memory::Category category) {
  using memory::Category;
  constexpr uint32_t kGrow = bit_of(Category::activation) | bit_of(Category::temporary) |
                             bit_of(Category::logits) | bit_of(Category::loss) |
                             bit_of(Category::input);
  return (kGrow & bit_of(category)) != 0;
}

bool makes_activations(step::Phase phase) {
  using step::Phase;
  return phase == Phase::input || phase == Phase::forward || phase == Phase::loss ||
         phase == Phase::backward;
}

}  // namespace

double growth_until(const step::StepTrace& trace, Bytes limit) {
  std::vector<int64_t> growing(trace.memory.buffers.size());  // bytes of those that live and grow
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
    int64_t& of_buffer = growing[event.buffer];
    if (event.kind == memory::EventKind::free) {
      grown -= of_buffer;
      fixed -= bytes - of_buffer;
      continue;
    }
    of_buffer = in_pass && grows(buffer.category) ? bytes : 0;
    grown += of_buffer;
    fixed += bytes - of_buffer;
    const int64_t room = limit.count - fixed;
    if (room < 0) return 0;
    // Most events divide nothing.
    if (static_cast<double>(room) >= growth * static_cast<double>(grown)) continue;
    growth = static_cast<double>(room) / static_cast<double>(grown);
  }
  return growth;
}

Bytes unused_at_most(const memory::ReplayResult& replay) {
  return Bytes(std::max<int64_t>(0, replay.peak_reserved.bytes - replay.peak_allocated.bytes));
}

}  // namespace headroom::fit
