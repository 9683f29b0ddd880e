// Of each way to divide a step the fastest setting that fits for sure: of all micro-batches that
// divide its sequences, and of a pipeline's schedules in each of them, where the question leaves
// them open.
//
// Every micro-batch is predicted, of pipelines under 1F1B. Other schedules are looked at first in
// the micro-batch that is fastest under 1F1B, then in the others, from that on whose stages compute
// least; a pipeline in a micro-batch is passed over, and counted as beaten, once something that
// fits for sure takes no longer than its stages compute on average (Candidate::least_seconds). So
// the first row is the fastest of all settings; a pipeline that cannot come first may be under a
// slower schedule than it could. The same answer on any number of cores.
#pragma once

#include <vector>

#include "fit/search/candidate.h"

namespace headroom::fit {

// Whether the question leaves open in which micro-batches a step has its sequences. Each one of a
// traced model would be a trace of its own.
[[nodiscard]] bool leaves_batch_open(const Scenario& scenario);

// Puts it in the place of each candidate that it beats. REQUIRES: filled.
void choose_within_ways(const Scenario& base, const StepTimer& timer,
                        std::vector<Candidate>& candidates, SearchCount& count);

}  // namespace headroom::fit
