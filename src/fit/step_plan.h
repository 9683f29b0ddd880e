// The plan of a symbolic step as a table, without any recording: what `fit --placements` writes,
// and what `headroom pack` takes as an instance.
#pragma once

#include <string>

#include "base/result.h"
#include "step/trace.h"

namespace headroom::fit {

// id,lower,upper,size,offset: a row a buffer, named by what it is for and its module; times are
// events of the trace. The plan is searched for as `headroom pack` would, and judged by the
// validator. The Error is about sizes that add up to more than a plan takes.
[[nodiscard]] Result<std::string> placements_of(const step::StepTrace& trace);

}  // namespace headroom::fit
