// Memory over the step of one row of a search: its page draws it beside the rows' peaks.
#pragma once

#include "base/result.h"
#include "fit/answer.h"
#include "fit/scenario/scenario.h"
#include "fit/search/method_row.h"

namespace headroom::fit {

// The step on one of the devices that need most.
struct StepOverTime {
  PeakPlace peak_at;
  Timeline timeline;  // its peak is the row's
};

// Predicted again, for the timeline; `any` is of the same model. REQUIRES: the row can be asked.
Result<StepOverTime> step_over_time(const Scenario& any, const MethodRow& row);

}  // namespace headroom::fit
