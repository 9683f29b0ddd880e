// What a step of a pipeline takes, from what each stage takes by itself.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fit/answer.h"
#include "step/pipeline.h"

namespace headroom::fit {

// Once the slowest stage has its first micro-batch it never waits: before it the first one passes
// through all other stages forward, and behind it the last one backward; of several chunks a
// stage's it is the first chunk's part of that. Where gradients of weights come later they are
// computed in what would be waiting: of a micro-batch the three parts are taken to be alike, and
// one is waited for. Mirrored chunks' orders are run (mirrored_time.h). Nothing where a stage's
// time is not known. Sources: arXiv 2104.04473, section 2.2 (the bubble of 1F1B, and GPipe's: p - 1
// micro-batches of a stage, and its v-th part interleaved); 2401.10241, table 2 (ZB-H1: p - 1 times
// forward and gradients of inputs less those of weights); here for stages that differ.
[[nodiscard]] std::optional<StepTime> pipeline_time(const std::vector<StageFigures>& stages,
                                                    const step::Pipeline& pipeline);

}  // namespace headroom::fit
