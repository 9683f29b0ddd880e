// The horizon: what changes would really give, each replayed, beside what Amdahl's law on kernel
// time promises.
#pragma once

#include <vector>

#include "ops/answer.h"
#include "ops/faster_groups.h"
#include "ops/program.h"
#include "ops/scenarios.h"

namespace headroom::ops {

// How well the replay tells the unchanged run.
ReplayError replay_error(const Recording& recording);

// The most speedup first. `changes`: of single kernels (scenarios.h); `faster`: one change that all
// of them are made by together, where there are some.
std::vector<HorizonChange> horizon(const Recording& recording, const OpsAnswer& answer,
                                   const OperatorRules& rules, const std::vector<Scenario>& changes,
                                   const std::vector<FasterGroup>& faster = {});

}  // namespace headroom::ops
