// Would a plan need less memory than best fit does? Both are played through what was logged, before
// anything is mapped for a plan: where requests differ from one iteration to the next, or nearly
// fill memory anyway, best fit over pages can be as good, and then nothing is changed.
//
// Pure; about a microsecond a request.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/compiled_plan.h"
#include "runtime/request_log.h"

namespace headroom::runtime {

struct Prediction {
  int64_t planned_bytes = 0;   // the plan's arena, and best fit for what it does not serve
  int64_t best_fit_bytes = 0;  // best fit for everything
  double slot_share = 1;       // of the requests that the plan was asked for, those in their slots
};

// The plan follows from one time on, to find its place, and serves from the other, when free pages
// are given back, as at a switch; peaks are read from then on.
struct PredictionTimes {
  int64_t follows_from = 0;
  int64_t serves_from = 0;
};
// `keeps_up`: events have happened when they are asked for, and streams wait for one another as
// they were logged to do, so that guests come into their cells; else nothing of the kind.
[[nodiscard]] Prediction predict(const std::shared_ptr<const CompiledPlan>& plan,
                                 const RequestLog::Understood& log, const PredictionTimes& times,
                                 int64_t page_bytes, bool keeps_up = true);

}  // namespace headroom::runtime
