// DeepSpeed's ZeRO as a question asks it: its options, and what of a question it cannot be.
#pragma once

#include <string_view>

#include "base/result.h"
#include "fit/scenario/scenario.h"

namespace headroom::fit {

// In the answer of a question that asks for mixed precision beside ZeRO.
inline constexpr std::string_view kDeepSpeedsHalf =
    "under ZeRO mixed precision is DeepSpeed's own: it makes the weights 16 bits, in whichever "
    "type "
    "they were loaded, with float32 masters among the optimizer's shares, and runs without "
    "autocast";

// The same question, where it asks for mixed precision beside ZeRO, of weights in that type and no
// autocast; any other as it is.
[[nodiscard]] FitQuestion as_deepspeed_runs(FitQuestion question);
// The scenario's question so, unless it is of a traced module, whose types are its own.
Result<void> take_half_of_deepspeed(Scenario& scenario);

// Counts of elements that are "auto" follow from the model's hidden size. Before zero_options().
Result<void> resolve_auto(Scenario& scenario);
[[nodiscard]] step::ZeroOptions zero_options(const Scenario& scenario);
Result<void> check_zero(const Scenario& scenario);

}  // namespace headroom::fit
