// Candidate: one setting of a search over methods, as a question and as the row that answers it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "fit/question.h"
#include "fit/scenario/scenario.h"
#include "fit/search/method_row.h"
#include "fit/search/search_progress.h"
#include "fit/stages.h"
#include "fit/time/step_timer.h"

namespace headroom::fit {

struct Candidate {
  FitQuestion question;
  MethodRow row;
  // Of a pipeline: what its stages compute on average, which is the least that a step takes under
  // any schedule: however it divides the model, all stages together compute as much, and the
  // slowest no less than the mean. What they send and wait is left out, as schedules hide more or
  // less of it. 0: not known.
  double least_seconds = 0;
  // What the row's figures are of, its fullest stage; null before it is filled, or where it was
  // refused.
  std::shared_ptr<const Varied> predicted = nullptr;
};

// Candidate::least_seconds of a pipeline of these stages. REQUIRES: there are some.
[[nodiscard]] double least_seconds_of(const std::vector<StageFigures>& stages);

// Predicts each and fills its row in, but for its largest batch: on the fullest of its stages,
// where it has some. What cannot be asked has the reason for it; who has one is left alone. `base`
// is any setting of the same model and device.
void fill(const Scenario& base, const StepTimer& timer, Candidate& candidate);
// On every core.
void fill_all(const Scenario& base, const StepTimer& timer, std::vector<Candidate>& candidates,
              SearchCount& count);

// MethodRow::largest_batch of each, which takes several predictions more, so once it is settled
// which rows there are; each size of a traced model would be a trace of its own. REQUIRES: filled.
void find_largest_batches(std::span<Candidate> candidates, SearchCount& count);

}  // namespace headroom::fit
