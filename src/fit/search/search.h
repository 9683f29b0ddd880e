// The largest value of a setting that still fits, found by running the model again.
//
// Problem: the largest n of 1 .. most for which a prediction says yes, where a prediction costs
// milliseconds and memory grows with n.
// Invariants:
//   1. `low` fits and `high` does not, both by predictions of their own (0 and most + 1 stand for
//      the ends); every probe lies between them and moves one of them.
//   2. So the answer fits, the next value does not (or is beyond the bound), and where memory grows
//      with n no larger value fits. (Sizes of segments can make a device's last megabytes fit one
//      value and not a smaller one; then it is one of several such borders.)
//   3. Guesses decide only where the next probe lies: each prediction says by how much what grows
//      with n could grow (Prediction::growth), which lands within a step or two of the border;
//      where guesses mislead, halving takes over.
// Cost: two or three predictions as a rule, O(log most) at worst.
#pragma once

#include <cstdint>
#include <functional>

#include "fit/answer.h"
#include "fit/prediction.h"

namespace headroom::fit {

// What is known before the search: the prediction of one value.
struct KnownValue {
  int64_t value = 0;
  const Prediction& prediction;
};

// The largest multiple of `step` up to `bound` (at least one step) whose prediction says yes; the
// value 0 where none does. `attempt` answers with nothing where there is no prediction, which
// counts as not fitting.
Largest search_largest(const std::function<std::optional<Prediction>(int64_t)>& attempt,
                       int64_t step, int64_t bound, const KnownValue& known);

// `known` is the scenario's own prediction.
Result<Largest> largest_batch(const Scenario& scenario, const Prediction& known);
// Up to the model's own limit on positions, where its config states one.
Result<Largest> longest_sequence(const Scenario& scenario, const Prediction& known);

}  // namespace headroom::fit
