// What the stages of a mirrored pipeline wait for each other, for which no closed form holds of
// stages that differ: the passes of all stages are run in their orders, each as soon as what it
// reads is there.
//
// A pass forward, one backward for inputs and one for weights are taken to be a third of a
// micro-batch's time each, half of it each chunk's; what is sent takes no time. The first part's
// gradients of inputs are nobody's: it has all of its backward pass with the weights.
// Cost: linear in the passes, of at most three micro-batches a stage, which hold warm-up, a steady
// part and the end.
#pragma once

#include <vector>

#include "fit/answer.h"
#include "step/pipeline.h"

namespace headroom::fit {

// From the first pass to the last, less what `slowest` computes. REQUIRES:
// is_mirrored(pipeline.schedule); figures of all its stages, of which `slowest` is one.
[[nodiscard]] double mirrored_waiting_seconds(const std::vector<StageFigures>& stages,
                                              const StageFigures& slowest,
                                              const step::Pipeline& pipeline);

}  // namespace headroom::fit
