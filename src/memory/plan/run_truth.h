// The judge of found iterations: against what the generator did (tests and benchmarks only).
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>

#include "memory/plan/generated_run.h"
#include "memory/plan/iterations.h"

namespace headroom::memory {

struct BoundaryScore {
  size_t found = 0;  // iterations, but for evaluations
  size_t right = 0;  // begin at one and the same line of the program and hold one iteration each
  size_t real = 0;   // that the recording shows whole
  size_t evaluations = 0;  // found as what they are
};

// How many of the iteration's requests are of that line of the program.
inline size_t passes_of(const GeneratedRun& run, const Iteration& iteration, int64_t line) {
  return static_cast<size_t>(
      std::count(run.places.begin() + static_cast<std::ptrdiff_t>(iteration.begin),
                 run.places.begin() + static_cast<std::ptrdiff_t>(iteration.end), line));
}

inline BoundaryScore score_boundaries(const GeneratedRun& run, const RunShape& shape,
                                      const Iterations& iterations) {
  BoundaryScore score;
  score.real = shape.iterations - (shape.starts_at > 0 ? 1 : 0) - (shape.ends_at < 1 ? 1 : 0);
  // Any line is as good as another, as long as it is the same each time.
  std::map<int64_t, size_t> lines;
  for (const Iteration& iteration : iterations.whole) ++lines[run.places[iteration.begin]];
  int64_t line = kNowhere;
  for (const auto& [place, times] : lines) {
    if (place != kNowhere && (line == kNowhere || times > lines[line])) line = place;
  }
  for (const Iteration& iteration : iterations.whole) {
    const size_t passes = passes_of(run, iteration, line);
    const size_t evaluations = passes_of(run, iteration, kEvaluationLine);
    // One evaluation, from its beginning to where the next iteration begins.
    if (run.places[iteration.begin] == kEvaluationLine && evaluations == 1 && passes == 0) {
      ++score.evaluations;
      continue;
    }
    ++score.found;
    if (run.places[iteration.begin] == line && passes == 1) ++score.right;
  }
  return score;
}

}  // namespace headroom::memory
