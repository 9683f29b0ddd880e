// Making a MemoryPlan from a recording's iterations: one signature a kind, each from several
// iterations, so that it survives what changes between them.
//
// A slot takes the largest size that it had and the union of its lifetimes, on the clock of slots.
// A block that a second stream used (its release was requested, and completed only later) is kept
// until the latest completion that was seen, and half of the longest delay beyond. What crosses the
// end of its iteration gets bytes of its own; where the next one of it begins before the last one
// is gone, it gets none. Slots whose sizes vary are planned at the largest or left to the dynamic
// spaces, whichever serves the iterations at hand in fewer bytes.
//
// As fast as the synthesizer is for each signature, and O(n log n) beside it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/packing/plan_synthesizer.h"
#include "memory/plan/iteration_slots.h"
#include "memory/plan/memory_plan.h"
#include "memory/plan/order_history.h"
#include "memory/plan/request_class.h"

namespace headroom::memory {

enum class Lending : uint8_t { none, behind_order, behind_events };

struct PlanOptions {
  int64_t alignment = 512;
  // Slots of the stream with the largest arena may be guests in the arenas of others (lending.h):
  // where the program had one stream wait for the other, or where the recording tells how far
  // behind the device was: by blocks that two streams use.
  Lending lending = Lending::none;
  // In the program's order, a plan may count on streams that are quiet being waited for
  // (OrderHistory::clear_by_joining).
  bool joins = true;
  size_t most_iterations = 0;  // of each kind, the first ones; 0: all
  size_t held_out = 0;         // so many at the end are not planned from
  SynthesisOptions synthesis{};
};

// What is known of a recording. REQUIRES: the parts belong together, and outlive what uses them.
struct UnderstoodRecording {
  std::span<const RecordedRequest> requests;
  const Iterations& iterations;
  const RequestClasses& classes;
  const SlotFinder& finder;
  const OrderHistory* order = nullptr;  // null: nothing is known of it
};

// Which iterations are planned from, by kind: the most frequent kinds, at most kMostSignatures, and
// of each the first `most` (0: all), the recording's very first iteration left out where there are
// others enough.
[[nodiscard]] std::vector<std::vector<uint32_t>> iterations_to_plan(const Iterations& iterations,
                                                                    size_t most,
                                                                    size_t held_out = 0);

// A plan that the checker takes. REQUIRES: there are iterations; the sizes, rounded up to the
// alignment, add up to less than kMaxPackingBytes.
[[nodiscard]] MemoryPlan make_plan(const UnderstoodRecording& recording,
                                   const PlanOptions& options);

// The same with slots of varying size planned, or left to the spaces.
[[nodiscard]] MemoryPlan make_plan(const UnderstoodRecording& recording, const PlanOptions& options,
                                   bool plans_varying_sizes);

}  // namespace headroom::memory
