// What a step of a pipeline takes, from what each stage takes by itself.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fit/answer.h"

namespace headroom::fit {

// Once the slowest stage has its first micro-batch it never waits: before it the first one passes
// through all other stages forward, and behind it the last one backward; of `chunks` chunks a
// stage's it is the first chunk's part of that. Nothing where a stage's time is not known.
// Source: arXiv 2104.04473, section 2.2 (the bubble of 1F1B: p - 1 micro-batches of a stage, and
// its v-th part interleaved), here for stages that differ.
[[nodiscard]] std::optional<StepTime> pipeline_time(const std::vector<StageFigures>& stages,
                                                    int64_t chunks);

}  // namespace headroom::fit
