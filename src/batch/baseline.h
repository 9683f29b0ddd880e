// What an answer's alternatives (another card, another setting, longer requests) are held against:
// the question, its targets and what is done of it as it stands.
//
// Where the targets are percentiles, requests come as they do, and an alternative is as good as the
// highest rate at which it keeps them. Else it has its own B_opt in a closed loop.
#pragma once

#include <optional>

#include "base/result.h"
#include "batch/open_load.h"
#include "batch/predicted.h"
#include "batch/question.h"
#include "text/json.h"

namespace headroom::batch {

struct LoadBaseline {
  serving::OpenLoadGoal goal;
  LoadBest best;  // whose limit others keep where it is nearly their best
};

struct Baseline {
  const BatchQuestion* question = nullptr;
  const text::JsonView* config = nullptr;
  Workload workload;
  AdvisorOptions advisor;
  Correction correction;                            // of what is predicted
  std::optional<LoadBaseline> load = std::nullopt;  // where percentiles are the target
};

// What a server as predicted does of the question's requests. Some half a second.
Result<LoadBest> load_of(const BatchQuestion& question, const Workload& workload,
                         const Predicted& predicted, const Correction& correction,
                         const LoadBaseline& base);

// Of the highest rate, with the law at the same end in both; nothing where the base keeps the
// targets at no rate.
std::optional<Interval> gain_over(const LoadBest& base, const LoadBest& one);

}  // namespace headroom::batch
