#include "fit/search/candidate.h"

#include <utility>

#include "base/parallel.h"
#include "fit/prediction.h"
#include "fit/search/search.h"
#include "fit/stages.h"
#include "fit/time/pipeline_time.h"

namespace headroom::fit {

double least_seconds_of(const std::vector<StageFigures>& stages) {
  double seconds = 0;
  for (const StageFigures& stage : stages) {
    if (!stage.time) return 0;
    seconds += stage.time->compute_seconds;
  }
  return seconds / static_cast<double>(stages.size());
}

void fill(const Scenario& base, const StepTimer& timer, Candidate& candidate) {
  MethodRow& row = candidate.row;
  if (!row.reason.empty()) return;
  const auto refuse = [&](const Error& error) { row.reason = error.message; };
  auto scenario = vary(base, candidate.question);
  if (!scenario) return refuse(scenario.error());
  std::vector<StageFigures> stages;
  DetailedPrediction detail;
  if (candidate.question.stages > 1) {
    auto made = stages_of(*scenario, timer, {.known = {}, .fullest = &detail});
    if (!made) return refuse(made.error());
    stages = std::move(*made);
    scenario = vary(base, at_stage(candidate.question, fullest_stage(stages)));
    if (!scenario) return refuse(scenario.error());
    add_oom_probability(*scenario, detail);
  } else {
    auto made = predict_in_detail(*scenario, 0);
    if (!made) return refuse(made.error());
    detail = std::move(*made);
  }
  take_prediction(*scenario, detail, row);
  name_stage(scenario->question.stage, scenario->question.stages, row);
  row.sent = sent_in(*scenario, detail.trace);
  if (!stages.empty()) {
    row.time = pipeline_time(stages, scenario->train.pipeline);
    candidate.least_seconds = least_seconds_of(stages);
  } else if (const auto time = timer.time_of(*scenario, detail.trace)) {
    row.time = *time;
  }
  candidate.predicted =
      std::make_shared<const Varied>(std::move(*scenario), std::move(detail.prediction));
}

void fill_all(const Scenario& base, const StepTimer& timer, std::vector<Candidate>& candidates,
              SearchCount& count) {
  count.begin_part(static_cast<int64_t>(candidates.size()));
  for_each_in_parallel(candidates.size(), 0, [&](size_t i) {
    fill(base, timer, candidates[i]);
    count.add_done(candidates[i].row.reason.empty());
  });
}

void find_largest_batches(std::span<Candidate> candidates, SearchCount& count) {
  count.begin_part(static_cast<int64_t>(candidates.size()));
  for_each_in_parallel(candidates.size(), 0, [&](size_t i) {
    Candidate& candidate = candidates[i];
    const bool can_be_searched = candidate.row.reason.empty() && candidate.predicted &&
                                 !candidate.predicted->scenario.traced;
    if (can_be_searched) {
      const auto& [scenario, prediction] = *candidate.predicted;
      if (const auto largest = largest_batch(scenario, prediction)) {
        candidate.row.largest_batch = *largest;
      }
    }
    count.add_done();
  });
}

}  // namespace headroom::fit
