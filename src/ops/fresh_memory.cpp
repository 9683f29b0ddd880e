#include "ops/fresh_memory.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/median.h"
#include "ops/process_heap.h"

namespace headroom::ops {

namespace {

// The event with which the last iteration begins.
size_t first_event_of_last_step(const step::StepTrace& trace) {
  size_t first = 0;
  int last_iteration = 0;
  for (const step::PhaseMark& mark : trace.phases) {
    if (mark.iteration <= last_iteration) continue;
    last_iteration = mark.iteration;
    first = mark.first_event;
  }
  return first;
}

// What the step's operators do not ask for: what is there before, and what a GPU's libraries alone
// take.
bool is_left_out(memory::Category category) {
  return category == memory::Category::parameter || category == memory::Category::lm_head_weight ||
         category == memory::Category::input || category == memory::Category::workspace;
}

bool is_training(const step::StepTrace& trace) {
  return std::ranges::any_of(trace.phases, [](const step::PhaseMark& mark) {
    return mark.phase == step::Phase::backward;
  });
}

// How many pages are new is known less well than what one costs: of seven models none, or 0.3 to
// 1.7 times as many as said (docs/measurements/2026-11-24-nongemm-predicted-again).
constexpr double kMostNew = 2;

// Until the heap does the same each time.
constexpr int kSteps = 4;

}  // namespace

FreshMemory fresh_memory_of(const timing::Calibration& calibration) {
  std::vector<double> costs;
  for (const timing::FreshMemoryPoint& point : calibration.fresh_memory) {
    costs.push_back(point.seconds / static_cast<double>(point.size.count));
  }
  if (costs.empty()) return {};
  const double most = *std::ranges::max_element(costs);
  return {0, median(std::move(costs)), kMostNew * most};
}

double fresh_bytes_of(double block_bytes) {
  constexpr double kMost = 1e18;  // beyond any memory, and within an integer
  return ProcessHeap::keeps(static_cast<int64_t>(std::min(block_bytes, kMost))) ? 0 : block_bytes;
}

std::vector<double> fresh_bytes_by_call(const step::StepTrace& trace) {
  std::vector<double> fresh(trace.calls.size());
  if (is_training(trace)) return fresh;
  const auto events =
      std::span(trace.memory.events)
          .subspan(std::min(first_event_of_last_step(trace), trace.memory.events.size()));
  ProcessHeap heap;
  for (int step = 0; step < kSteps; ++step) {
    std::ranges::fill(fresh, 0);
    std::vector<uint32_t> made;
    for (const memory::MemoryEvent& event : events) {
      const memory::BufferInfo& block = trace.memory.buffers[event.buffer];
      if (is_left_out(block.category) || block.requested_bytes <= 0) continue;
      if (event.kind == memory::EventKind::free) {
        heap.release(event.buffer);
        continue;
      }
      made.push_back(event.buffer);
      const int64_t bytes = heap.allocate(event.buffer, block.requested_bytes);
      if (event.operation < fresh.size()) fresh[event.operation] += static_cast<double>(bytes);
    }
    for (const uint32_t block : made) heap.release(block);  // what the step gave back, let go
  }
  return fresh;
}

}  // namespace headroom::ops
