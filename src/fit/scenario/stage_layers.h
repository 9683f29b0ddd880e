// Which layers the stages of torch.distributed.pipelining have: as the question says, or as
// torchtitan shares them out.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "fit/scenario/scenario.h"

namespace headroom::fit {

// Of each part of the model, in its order. The Error is about a model that has too few, or whose
// layers are not known, or what is said and does not come to them. REQUIRES: several stages.
Result<std::vector<int64_t>> layers_by_part(const Scenario& scenario);

// The same, by stage and by its chunks.
[[nodiscard]] std::vector<std::vector<int64_t>> by_stage(const std::vector<int64_t>& by_part,
                                                         const FitQuestion& question);
// And back.
[[nodiscard]] std::vector<int64_t> by_part(const std::vector<std::vector<int64_t>>& by_stage,
                                           const FitQuestion& question);

}  // namespace headroom::fit
