// A StepTrace as headroom.events/1: one event an operator with what it allocates and releases and
// the bytes then alive. The oracle under python/headroom writes the same shape from real PyTorch,
// and the two are compared byte by byte.
#pragma once

#include "step/trace.h"
#include "text/json.h"

namespace headroom::step {

// Everything but construction for iteration 1 and on; construction as one starting figure.
[[nodiscard]] text::Json events_json(const StepTrace& trace);

}  // namespace headroom::step
