// The stages of torch.distributed.pipelining in a Scenario: which part of the model the one that is
// looked at has, and how it runs its micro-batches.
#pragma once

#include "base/result.h"
#include "fit/scenario/scenario.h"

namespace headroom::fit {

// As many micro-batches as there are stages, where nobody says how many.
void fill_stages(Scenario& s);

// The schedule, of s.question, in s.train. REQUIRES: several stages.
void set_pipeline(Scenario& s);

// The stage's layers in s.build, where there are several. The Error is about a model that has too
// few, or about what is said of them.
Result<void> set_parts(Scenario& s);

// What such a stage cannot be asked together with.
Result<void> check_pipeline(const Scenario& s);

}  // namespace headroom::fit
