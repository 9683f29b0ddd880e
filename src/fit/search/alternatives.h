// What a way to divide a step leaves open, each decided by the fastest that fits for sure: in which
// micro-batches it has its sequences, and in which order a pipeline's stages run them.
#pragma once

#include <vector>

#include "fit/search/candidate.h"

namespace headroom::fit {

// Whether the question leaves open in which micro-batches a step has its sequences. Each one of a
// traced model would be a trace of its own.
[[nodiscard]] bool leaves_batch_open(const Scenario& scenario);

// A candidate's own stays where no other is faster; what no flag takes is none. REQUIRES: filled.
void choose_batches(const Scenario& base, const StepTimer& timer,
                    std::vector<Candidate>& candidates, SearchCount& count);

// Of pipelines that could come first by it, where the question names no schedule: zero bubble,
// either interleaved, ZB-V and DualPipeV beside 1F1B. REQUIRES: filled.
void choose_schedules(const Scenario& base, const StepTimer& timer,
                      std::vector<Candidate>& candidates, SearchCount& count);

}  // namespace headroom::fit
