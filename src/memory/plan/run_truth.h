// The judge of found iterations: against what the generator did (tests and benchmarks only).
#pragma once

#include <cstddef>
#include <map>

#include "memory/plan/generated_run.h"
#include "memory/plan/iterations.h"

namespace headroom::memory {

struct BoundaryScore {
  size_t found = 0;  // iterations
  size_t right = 0;  // begin at one and the same line of the program and hold one iteration each
  size_t real = 0;   // that the recording shows whole
};

inline BoundaryScore score_boundaries(const GeneratedRun& run, const RunShape& shape,
                                      const Iterations& iterations) {
  BoundaryScore score;
  score.found = iterations.whole.size();
  score.real = shape.iterations - (shape.starts_at > 0 ? 1 : 0) - (shape.ends_at < 1 ? 1 : 0);
  // Any line is as good as another, as long as it is the same each time.
  std::map<int64_t, size_t> lines;
  for (const Iteration& iteration : iterations.whole) ++lines[run.places[iteration.begin]];
  int64_t line = kNowhere;
  for (const auto& [place, times] : lines) {
    if (place != kNowhere && (line == kNowhere || times > lines[line])) line = place;
  }
  for (const Iteration& iteration : iterations.whole) {
    if (run.places[iteration.begin] != line) continue;
    size_t passes = 0;  // of that line
    for (size_t i = iteration.begin; i < iteration.end; ++i) {
      if (run.places[i] == line) ++passes;
    }
    if (passes == 1) ++score.right;
  }
  return score;
}

}  // namespace headroom::memory
