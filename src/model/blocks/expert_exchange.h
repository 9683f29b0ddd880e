// A mixture's experts shared out among ranks, each with a batch of its own: rows go to the ranks
// that have their experts, and what those answer comes back and is weighted where it was sent from.
//
// How many rows come depends on the router: BuildOptions::expert_share says of what even routing
// would send. Source: transformers/distributed/expert_parallel.py (AllToAllEP; 5.23).
#pragma once

#include "model/blocks/experts.h"
#include "model/builder.h"
#include "model/options.h"

namespace headroom::model {

// What arrived for this rank's experts.
struct ArrivedRows {
  Var rows;     // [arrived, hidden]
  Var experts;  // [arrived, 1], by this rank's own numbers
  Var weights;  // [arrived, 1], ones
  Var order;    // [tokens * top_k], of what was sent, sorted by expert
};

// How many rows this rank's experts get, of all that the ranks send: one at least.
int64_t arrived_rows(const BuildOptions& options, const ExpertsShape& shape);

// x [tokens, hidden], chosen [tokens, top_k].
ArrivedRows send_to_experts(GraphBuilder& g, const BuildOptions& options, const ExpertsShape& shape,
                            const Var& x, const Var& chosen);

// outputs [arrived, hidden] of this rank's experts; the weighted sum of what its own tokens chose,
// [tokens, hidden], in the type that weights and outputs are promoted to.
Var take_from_experts(GraphBuilder& g, const BuildOptions& options, const ExpertsShape& shape,
                      const Var& outputs, const Var& weights, const Var& order);

}  // namespace headroom::model
