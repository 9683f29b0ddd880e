// Candidates for the boundaries of iterations: runs of requests that come again at regular
// distances over most of a recording.
//
// In each iteration there are runs that occur once in it (its beginning, the loss, the optimizer),
// and runs that occur once a layer; so the occurrences of a run that is as frequent as iterations
// are cut the recording into stretches of one iteration each. Which candidate is right shows only
// when the stretches are compared (iterations.h). O(n log n).
#pragma once

#include <cstddef>
#include <vector>

#include "memory/plan/request_sequence.h"

namespace headroom::memory {

struct BoundaryCandidate {
  std::vector<size_t> places;  // of the sequence, in order; two or more
  size_t period = 0;           // the median distance
};

inline constexpr size_t kMostCandidates = 24;

// By number of places, at most kMostCandidates of them: those that most runs speak for.
[[nodiscard]] std::vector<BoundaryCandidate> boundary_candidates(const RequestSequence& sequence);

}  // namespace headroom::memory
