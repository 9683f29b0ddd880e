// DeepSpeed's ZeRO as a question asks it: its options, and what of a question it cannot be.
#pragma once

#include "base/result.h"
#include "fit/scenario/scenario.h"

namespace headroom::fit {

// Counts of elements that are "auto" follow from the model's hidden size. Before zero_options().
Result<void> resolve_auto(Scenario& scenario);
[[nodiscard]] step::ZeroOptions zero_options(const Scenario& scenario);
Result<void> check_zero(const Scenario& scenario);

}  // namespace headroom::fit
