#include "batch/baseline.h"

#include <algorithm>

namespace headroom::batch {

Result<LoadBest> load_of(const BatchQuestion& question, const Workload& workload,
                         const Predicted& predicted, const Correction& correction,
                         const LoadBaseline& base) {
  HEADROOM_ASSIGN(const OpenLoadBasis basis,
                  basis_of_prediction(question, workload, predicted, correction));
  return best_of_load(question, basis, base.goal, base.best.limit);
}

std::optional<Interval> gain_over(const LoadBest& base, const LoadBest& one) {
  const Interval& from = base.highest_rate;
  const Interval& to = one.highest_rate;
  if (!(from.expected > 0)) return std::nullopt;
  const double expected = to.expected / from.expected;
  Interval gain{expected, expected, expected};
  for (double Interval::*const end : {&Interval::low, &Interval::high}) {
    if (!(from.*end > 0)) continue;
    gain.low = std::min(gain.low, to.*end / from.*end);
    gain.high = std::max(gain.high, to.*end / from.*end);
  }
  return gain;
}

}  // namespace headroom::batch
