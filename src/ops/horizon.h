// The horizon: what changes would really give, each replayed, beside what Amdahl's law on kernel
// time promises.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/answer.h"
#include "ops/program.h"
#include "ops/scenarios.h"

namespace headroom::ops {

// How well the replay tells the unchanged run.
ReplayError replay_error(const Recording& recording);

// Groups of operators that somebody makes faster by a factor.
struct FasterGroup {
  std::string name;   // "gemm", or "non_gemm": all but GEMM, attention, communication, unclassified
  std::string title;  // "GEMM"
  double factor = 2;
};

// "gemm=4,attention=2" as groups of the rules; none of "".
Result<std::vector<FasterGroup>> faster_groups(std::string_view words, const OperatorRules& rules);

// The most speedup first. `changes`: of single kernels (scenarios.h); `faster`: one change that all
// of them are made by together, where there are some.
std::vector<HorizonChange> horizon(const Recording& recording, const OpsAnswer& answer,
                                   const OperatorRules& rules, const std::vector<Scenario>& changes,
                                   const std::vector<FasterGroup>& faster = {});

}  // namespace headroom::ops
