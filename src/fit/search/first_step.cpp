#include "fit/search/first_step.h"

#include "fit/explain.h"
#include "fit/prediction.h"
#include "fit/stages.h"

namespace headroom::fit {

Result<StepOverTime> step_over_time(const Scenario& any, const MethodRow& row) {
  HEADROOM_ASSIGN(const Scenario scenario, vary(any, at_stage(row.question, row.stage)));
  HEADROOM_ASSIGN(const DetailedPrediction detail, predict_in_detail(scenario, kTimelinePoints));
  return StepOverTime{peak_place(detail), timeline_of(detail)};
}

}  // namespace headroom::fit
