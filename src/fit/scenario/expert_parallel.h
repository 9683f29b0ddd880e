// Experts shared out among the ranks of fully_shard, as transformers'
// DistributedConfig(ep_size=...) has it: what of a question it cannot be.
#pragma once

#include "base/result.h"
#include "fit/scenario/scenario.h"
#include "model/graph.h"

namespace headroom::fit {

// Of settings alone.
Result<void> check_expert_parallel(const Scenario& scenario);
// Of the model that was built, or was not: it has experts that can be shared out so.
Result<void> check_shared_out(const Scenario& scenario, const Result<model::Graph>& built);

}  // namespace headroom::fit
