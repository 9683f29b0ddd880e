// The two questions of `headroom fit`.
//
// Pure: files named by the question are read, and written where it says so (events,
// save_calibration), nothing is printed. Thread-safe; a 7B model with its replay takes
// milliseconds, with the search for remedies some hundreds of replays.
#pragma once

#include "base/result.h"
#include "fit/answer.h"
#include "fit/question.h"

namespace headroom::fit {

// Whether one training step of this question fits its device, and what would change that.
Result<FitAnswer> answer(const FitQuestion& question);

// Predictions for every row of a file of measurements, held against them.
Result<AgainstAnswer> answer_against(const AgainstQuestion& question);

}  // namespace headroom::fit
