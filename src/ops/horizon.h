// The horizon: what changes would really give, each replayed, beside what Amdahl's law on kernel
// time promises.
#pragma once

#include <optional>
#include <vector>

#include "ops/answer.h"
#include "ops/program.h"
#include "ops/scenarios.h"

namespace headroom::ops {

// How well the replay tells the unchanged run.
ReplayError replay_error(const Recording& recording);

// The most speedup first. `changes`: of single kernels (scenarios.h).
std::vector<HorizonChange> horizon(const Recording& recording, const OpsAnswer& answer,
                                   const OperatorRules& rules,
                                   const std::vector<Scenario>& changes);

}  // namespace headroom::ops
