// Memory that a step asks for anew, on a processor: what finding and clearing its pages takes.
//
// PyTorch's tensors there come from malloc, and what glibc takes from the system anew is paid for
// by whoever writes to it first: a fault at each page. Which blocks are new in a step that was run
// before says process_heap.h, from the blocks that the step asks for and lets go; what an operator
// asks for within itself is in no trace, so that it is less than what really is new.
//
// Pure; a few passes over the events of the step.
#pragma once

#include <vector>

#include "base/units.h"
#include "step/trace.h"
#include "timing/calibration.h"

namespace headroom::ops {

// Of a byte that is written to for the first time, beyond writing it; all 0: not measured.
struct FreshMemory {
  double seconds_low = 0;
  double seconds = 0;
  double seconds_high = 0;
};

// Of the sizes that were measured the median; at least nothing is new, at most twice as much as
// said.
[[nodiscard]] FreshMemory fresh_memory_of(const timing::Calibration& calibration);

// How much of a block is new that an operator takes for itself and no heap was asked for: all of
// one that the heap never holds.
[[nodiscard]] double fresh_bytes_of(double block_bytes);

// Of each call of the trace, by index: what it asks for that is new, in the last iteration made
// over and over. Nothing of training: what backward asks for within its operators is in no trace.
[[nodiscard]] std::vector<double> fresh_bytes_by_call(const step::StepTrace& trace);

}  // namespace headroom::ops
