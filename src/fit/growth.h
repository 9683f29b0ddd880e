// How far a step is from filling its device, as one number: a guess, for searches.
//
// Taken to grow are the blocks that forward and backward make, all alike and in proportion;
// weights, gradients and states stay. That is not exact (eager attention grows with the square of
// the sequence, backward makes weights' gradients too), and need not be. Linear in the trace's
// events.
#pragma once

#include "base/units.h"
#include "memory/replay.h"
#include "step/trace.h"

namespace headroom::fit {

// The factor at which the highest sum of what was asked for reaches `limit`; 0 where what does not
// grow is beyond it. Below 1 exactly when the sum as it is goes beyond the limit.
[[nodiscard]] double growth_until(const step::StepTrace& trace, Bytes limit);

// The most that the allocator held beyond what was allocated.
[[nodiscard]] Bytes unused_at_most(const memory::ReplayResult& replay);

}  // namespace headroom::fit
