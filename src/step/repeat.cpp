#include "step/repeat.h"

namespace headroom::step {

using memory::EventKind;
using memory::MemoryEvent;

bool StepRepeater::settle() {
  const uint32_t first = passes_.begin.buffer;
  is_kept_.assign(passes_.end.buffer - first, true);
  std::vector<bool> is_gradient(is_kept_.size());
  for (const auto& gradient : gradients_) {
    if (!gradient) continue;
    if (gradient->buffer < first) return false;
    is_gradient[gradient->buffer - first] = true;
  }
  for (uint32_t i = passes_.begin.event; i < release_.end.event; ++i) {
    const MemoryEvent& event = trace_.memory.events[i];
    if (event.kind != EventKind::free || event.buffer >= passes_.end.buffer) continue;
    if (event.buffer < first) return false;  // something older went, and cannot go again
    const uint32_t block = event.buffer - first;
    const bool between = i >= passes_.end.event && i < release_.begin.event;
    if (between != is_gradient[block]) return false;
    is_kept_[block] = false;
  }
  for (uint32_t i = 0; i < is_kept_.size(); ++i) {
    const memory::BufferInfo& info = trace_.memory.buffers[first + i];
    if (is_kept_[i] && info.category != memory::Category::workspace) return false;
  }
  return true;
}

void StepRepeater::repeat_passes(op::Eager& eager,
                                 const std::vector<OptimizedParameter>& parameters, int iteration) {
  names_.assign(passes_.end.buffer - passes_.begin.buffer, op::kNoBuffer);
  repeat(passes_, iteration);
  hang_gradients(eager, parameters, gradients_,
                 [&](uint32_t buffer) { return names_[buffer - passes_.begin.buffer]; });
}

void StepRepeater::repeat(const Recorded& stretch, int iteration) {
  const uint32_t first = passes_.begin.buffer;
  const RecorderPosition start = recorder_.position();
  size_t mark = stretch.begin.phase;
  for (size_t i = stretch.begin.event; i <= stretch.end.event; ++i) {
    for (; mark < stretch.end.phase && trace_.phases[mark].first_event == i; ++mark) {
      const PhaseMark& phase = trace_.phases[mark];
      const uint32_t call = start.call + (phase.first_call - stretch.begin.call);
      recorder_.write_phase({phase.phase, iteration, 0, call});
    }
    if (i == stretch.end.event) break;
    const MemoryEvent event = trace_.memory.events[i];
    const uint32_t block = event.buffer - first;
    if (block >= is_kept_.size() || is_kept_[block]) continue;
    const uint32_t call = start.call + (event.operation - stretch.begin.call);
    if (event.kind == EventKind::alloc) {
      names_[block] = recorder_.repeat_alloc(event.buffer, call);
    } else {
      recorder_.write_free(names_[block], call);
    }
  }
  recorder_.repeat_calls(stretch.begin.call, stretch.end.call);
}

}  // namespace headroom::step
