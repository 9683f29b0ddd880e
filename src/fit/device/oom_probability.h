// How probable it is that a step ends out of memory.
//
// A step ends where what it needs at the least is more than its device has left. That least is not
// what the allocator would like to hold: one that meets the device's end empties its cache and goes
// on, so it is the smallest limit within which the replay runs through. Two things are not sure,
// and both are those that device_used's interval is made of:
//   - what is outside of the allocator (device_used.h): its low, expected and high are taken as
//     what 5, 50 and 95 % of runs stay below, with straight lines between and beyond;
//   - by how much a run needs more than was predicted, or less: as measured peaks did of which
//     nothing was fitted, in the shares in which they did.
// docs/measurements/2026-11-22-fit-oom holds the outcome against runs that did run out.
// Of one process; those of a step are alike, so the first to end ends all. Pure.
#pragma once

#include "base/units.h"
#include "fit/answer.h"

namespace headroom::fit {

// Measured peaks beside the predicted, and so what can be told apart: nothing is surer than one of
// so many and one more.
inline constexpr int kPeaksMeasured = 331;
inline constexpr double kLeastOomProbability = 1.0 / (kPeaksMeasured + 1);

// Needs of less than `low` leave no more than the least probability, those of more than `high` no
// less than the most.
struct UndecidedNeeds {
  Bytes low;
  Bytes high;
};
[[nodiscard]] UndecidedNeeds undecided_needs(const Interval& outside, Bytes offered);

// Within [kLeastOomProbability, 1 - kLeastOomProbability].
[[nodiscard]] double oom_probability(Bytes need, const Interval& outside, Bytes offered);

}  // namespace headroom::fit
