// A change of a run on a CPU: chains of elementwise operators fused into one loop each.
//
// A chain is a row of neighbours that go over equally many elements: arithmetic, functions,
// normalization and softmax, with what is done to a reduction of their rows between them (a mean's
// root); what is smaller otherwise, and what copies, ends it. In one loop what
// one makes for the next stays in a register: of the chain's traffic two passes a link go, a write
// and a read. The rest moves at the rate that the chain's own arithmetic was seen to reach, which
// moves and hardly computes; what functions take beyond their traffic at that rate is computing,
// and stays (docs/measurements/2026-11-21-ops-pairs: a share of each operator's time was wrong by
// up to 600 %). The interval: from one pass a link, where others read the result too, to one read
// and one write in all, where operands are the same tensor, which no trace says.
//
// PyTorch's views between operators go, too: a compiled graph makes none. What its interpreter
// takes between operators stays, for what a compiled function costs to call, which was as much
// (docs/measurements/2026-11-24-ops-pairs).
//
// Not in it: what is recognized beyond a loop (attention, a product's epilogue), memory that is new
// to the process. Linear in the operators; pure.
#pragma once

#include <optional>

#include "ops/scenarios.h"

namespace headroom::ops {

// Nothing where no chain is found, or no shapes were recorded.
std::optional<Scenario> host_fusion(const Recording& recording, const RecordedRun& run,
                                    const OperatorRules& rules);

}  // namespace headroom::ops
