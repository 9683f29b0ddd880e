// Candidate: one setting of a search over methods, as a question and as the row that answers it.
#pragma once

#include <vector>

#include "fit/question.h"
#include "fit/scenario/scenario.h"
#include "fit/search/method_row.h"
#include "fit/search/search_progress.h"
#include "fit/time/step_timer.h"

namespace headroom::fit {

struct Candidate {
  FitQuestion question;
  MethodRow row;
  // Of a pipeline: what its stages take on average without waiting for each other. Taken as the
  // least of every schedule's: however they divide the model, the slowest stage computes as much;
  // what of their collectives is not hidden may differ. 0: not known.
  double least_seconds = 0;
};

// Predicts each and fills its row in: on the fullest of its stages, where it has some. What cannot
// be asked has the reason for it. `base` is any setting of the same model and device.
void fill(const Scenario& base, const StepTimer& timer, Candidate& candidate);
// On every core.
void fill_all(const Scenario& base, const StepTimer& timer, std::vector<Candidate>& candidates,
              SearchCount& count);

}  // namespace headroom::fit
