#include "memory/planned_replay.h"

#include <algorithm>

#include "base/check.h"
#include "base/units.h"
#include "memory/late_frees.h"
#include "memory/packing/plan_synthesizer.h"
#include "memory/packing/validator.h"
#include "memory/replay_composition.h"

namespace headroom::memory {
namespace {

constexpr int64_t kDriverPage = 2 * kMiB;
constexpr double kNearEnough = 0.001;  // of the bound

uint32_t stream_count(const MemoryTrace& trace) {
  uint32_t count = 1;
  for (const BufferInfo& buffer : trace.buffers) count = std::max(count, buffer.stream + 1);
  return count;
}

// The bytes of one stream's plan. REQUIRES: check_problem(problem).
int64_t planned_bytes(const PackingProblem& problem) {
  SynthesisOptions options;
  options.near_enough = kNearEnough;
  options.depth = SynthesisDepth::quick;
  options.threads = 1;  // whoever asks for many replays runs them side by side
  const Synthesis synthesis = PlanSynthesizer(options).synthesize(problem);
  HEADROOM_CHECK(validate_packing(problem, synthesis.solution),
                 "a plan that the validator refuses");
  return synthesis.solution.bytes;
}

void raise(Peak& peak, int64_t bytes, size_t event) {
  if (bytes > peak.bytes) peak = {bytes, event};
}

// Statistics and peaks of the blocks: what the program let go of is not allocated, but active and
// requested until it comes back.
void count_blocks(const MemoryTrace& trace, const std::vector<int64_t>& block_sizes,
                  ReplayResult& result) {
  AllocatorStatistics& now = result.statistics;
  const auto hold = [&](uint32_t buffer, int64_t sign) {
    now.active_bytes.add(sign * block_sizes[buffer]);
    now.active_blocks.add(sign);
    now.requested_bytes.add(sign * trace.buffers[buffer].requested_bytes);
  };
  const std::vector<LateFree> late = late_frees(trace);
  std::vector<bool> is_late(trace.buffers.size());
  for (const LateFree& free : late) is_late[free.buffer] = true;
  auto back = late.begin();
  for (size_t i = 0; i < trace.events.size(); ++i) {
    for (; back != late.end() && back->event <= i; ++back) hold(back->buffer, -1);
    const MemoryEvent& event = trace.events[i];
    const int64_t sign = event.kind == EventKind::alloc ? 1 : -1;
    now.allocated_bytes.add(sign * block_sizes[event.buffer]);
    now.allocations.add(sign);
    if (sign > 0 || !is_late[event.buffer]) hold(event.buffer, sign);
    raise(result.peak_allocated, now.allocated_bytes.peak, i);
    raise(result.peak_requested, now.requested_bytes.peak, i);
    raise(result.peak_active, now.active_bytes.peak, i);
  }
}

}  // namespace

PackingProblem packing_problem_of(const MemoryTrace& trace, uint32_t stream) {
  PackingProblem problem;
  problem.alignment = kMinBlockSize;
  problem.requests.resize(trace.buffers.size());
  const auto end = static_cast<int64_t>(trace.events.size());
  std::vector<bool> is_released(trace.buffers.size());
  for (int64_t i = 0; i < end; ++i) {
    const MemoryEvent& event = trace.events[static_cast<size_t>(i)];
    PackingRequest& request = problem.requests[event.buffer];
    if (trace.buffers[event.buffer].stream != stream) continue;
    if (event.kind == EventKind::alloc) {
      request = {i, end, trace.buffers[event.buffer].requested_bytes};
    } else {
      request.upper = i;
      is_released[event.buffer] = true;
    }
  }
  for (size_t i = 0; i < problem.requests.size(); ++i) {
    if (!is_released[i]) problem.requests[i].lower = 0;
  }
  for (const LateFree& late : late_frees(trace)) {
    if (trace.buffers[late.buffer].stream != stream) continue;
    problem.requests[late.buffer].upper = static_cast<int64_t>(late.event);
  }
  return problem;
}

ReplayResult replay_planned(const MemoryTrace& trace, const PlannedReplayOptions& options) {
  ReplayResult result;
  int64_t reserved = 0;
  for (uint32_t stream = 0; stream < stream_count(trace); ++stream) {
    const PackingProblem problem = packing_problem_of(trace, stream);
    if (!check_problem(problem)) {
      result.out_of_memory.emplace();
      return result;
    }
    reserved += round_up(planned_bytes(problem), kDriverPage);
  }
  if (reserved > options.limit_bytes) result.out_of_memory.emplace();
  result.peak_reserved = {reserved, 0};
  result.statistics.reserved_bytes.add(reserved);

  std::vector<int64_t> block_sizes(trace.buffers.size());
  for (size_t i = 0; i < block_sizes.size(); ++i) {
    block_sizes[i] = round_up(trace.buffers[i].requested_bytes, kMinBlockSize);
  }
  count_blocks(trace, block_sizes, result);
  Composition composition(trace, block_sizes);
  for (size_t i = 0; i < trace.events.size() && i <= result.peak_allocated.event; ++i) {
    composition.apply(i);
  }
  result.at_peak_allocated = composition.bytes();
  if (options.timeline_points > 0) {
    result.timeline = make_timeline(trace, trace.events.size(), block_sizes, {{0, reserved}},
                                    options.timeline_points);
  }
  return result;
}

}  // namespace headroom::memory
