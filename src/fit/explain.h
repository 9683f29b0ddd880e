// Where in the step the peak is, and why, in words; and the timeline that a page draws.
#pragma once

#include <cstddef>

#include "fit/answer.h"
#include "fit/prediction.h"

namespace headroom::fit {

// What a page draws at the most.
inline constexpr size_t kTimelinePoints = 1500;

[[nodiscard]] PeakPlace peak_place(const DetailedPrediction& detail);
[[nodiscard]] Timeline timeline_of(const DetailedPrediction& detail);

}  // namespace headroom::fit
