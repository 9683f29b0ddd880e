// A symbolic step, packed without any recording: its requests where PyTorch's allocator would put
// them under its default settings, by the simulator, beside a plan.
//
// What exists before the step (parameters, optimizer states) is its first requests. A moment is an
// event of the trace, and a call site is a phase, a module and an operator. Some microseconds a
// request, and the planning. Pure.
#pragma once

#include <string>

#include "base/result.h"
#include "pack/pack.h"
#include "step/trace.h"

namespace headroom::pack {

// Of `question` the file is the name that the answer bears.
Result<PackAnswer> answer_step(const PackQuestion& question, const step::StepTrace& trace);

}  // namespace headroom::pack
