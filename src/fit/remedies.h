// Remedies: what to change so that a step needs less, each found by running the model again.
#pragma once

#include <vector>

#include "fit/answer.h"
#include "fit/prediction.h"

namespace headroom::fit {

// Those that apply to this scenario and save memory, the largest saving first. `before` is the
// scenario's own prediction.
[[nodiscard]] std::vector<Remedy> find_remedies(const Scenario& scenario, const Prediction& before);

}  // namespace headroom::fit
