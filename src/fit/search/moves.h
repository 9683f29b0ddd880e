// What would change a pipeline as a whole, Megatron-LM's or PyTorch's: moves between its stages.
//
// A remedy (search/remedies.h) changes the step of the stage that needs most. A move weighs the
// stages against each other: layers go from the stage that shows most of its device to those with
// room, the fullest stages alone recompute, fewer micro-batches wait. Each is predicted stage by
// stage, and the step's time with it, so what it costs is said beside what it saves. The stages
// that a move leaves as they are are not predicted again.
#pragma once

#include <vector>

#include "fit/answer.h"
#include "fit/scenario/scenario.h"
#include "fit/time/step_timer.h"

namespace headroom::fit {

// Those that save anything on the fullest stage, what saves most first. `any` is of one of the
// stages, `stages` are all of them as predicted. REQUIRES: two stages.
[[nodiscard]] std::vector<PipelineMove> pipeline_moves(const Scenario& any, const StepTimer& timer,
                                                       const std::vector<StageFigures>& stages);

}  // namespace headroom::fit
