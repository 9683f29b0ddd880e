// The largest value of a setting that still fits, by doubling and halving over real predictions.
// Memory grows with batch and sequence, so O(log n) predictions find the border.
#pragma once

#include "fit/answer.h"
#include "fit/prediction.h"

namespace headroom::fit {

// Fits means verdict yes. Errors of a prediction end the search at the last value that had none.
Result<Largest> largest_batch(const Scenario& scenario);
// Up to the model's own limit on positions, where its config states one.
Result<Largest> longest_sequence(const Scenario& scenario);

}  // namespace headroom::fit
