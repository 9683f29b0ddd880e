// Experts shared out among the ranks of fully_shard, as transformers'
// DistributedConfig(ep_size=...) has it: what of a question it cannot be.
#pragma once

#include "base/result.h"
#include "fit/scenario/scenario.h"
#include "model/graph.h"

namespace headroom::fit {

// Of settings alone.
Result<void> check_expert_parallel(const Scenario& scenario);
// Of the model that was built: it has experts that can be shared out.
Result<void> check_shared_out(const model::Graph& graph);

}  // namespace headroom::fit
