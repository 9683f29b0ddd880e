// The horizon: what changes would really give, each replayed, beside what Amdahl's law on kernel
// time promises.
#pragma once

#include <optional>
#include <vector>

#include "ops/answer.h"
#include "ops/program.h"

namespace headroom::ops {

// How well the replay tells the unchanged run.
ReplayError replay_error(const Recording& recording);

// The most speedup first.
std::vector<HorizonChange> horizon(const Recording& recording, const OpsAnswer& answer,
                                   const OperatorRules& rules);

}  // namespace headroom::ops
