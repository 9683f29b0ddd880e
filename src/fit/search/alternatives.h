// What a way to divide a step leaves open, as settings of that way: in which micro-batches it has
// its sequences, and in which order a pipeline's stages run them.
#pragma once

#include <vector>

#include "fit/search/candidate.h"

namespace headroom::fit {

// The same step in each other micro-batch; what no flag takes is none.
[[nodiscard]] std::vector<Candidate> with_other_batches(const Candidate& candidate);

// Of a pipeline under 1F1B the same under every other schedule: zero bubble, either interleaved
// (vpp:2, vpp:4), ZB-V and DualPipeV. GPipe is none of them, as it is never ahead of 1F1B: each
// stage runs the same passes, waits for as many of other stages' (pipeline_time.h), and holds at
// its fullest every micro-batch of the step, of which 1F1B holds no more than stages are left, and
// what it sent besides (step/torch_stages.h).
[[nodiscard]] std::vector<Candidate> with_other_schedules(const Candidate& candidate);

}  // namespace headroom::fit
