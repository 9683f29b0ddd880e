#include "serving/speculation.h"

#include <cmath>

#include "serving/prompt.h"

namespace headroom::serving {

double Speculation::tokens_per_step() const {
  const auto drafts = static_cast<double>(draft_tokens);
  if (acceptance >= 1) return drafts + 1;
  return (1 - std::pow(acceptance, drafts + 1)) / (1 - acceptance);
}

int64_t Speculation::accepted(size_t request, int64_t written, int64_t drafts) const {
  if (drafts <= 0) return 0;
  uint64_t bits = mixed(mixed(static_cast<uint64_t>(request)) ^ static_cast<uint64_t>(written));
  for (int64_t i = 0; i < drafts; ++i) {
    const double uniform = static_cast<double>(bits >> 11) * 0x1.0p-53;
    if (uniform >= acceptance) return i;
    bits = mixed(bits);
  }
  return drafts;
}

double decode_seconds(const IterationLaw& law, const Speculation& speculation,
                      const IterationWork& work) {
  const double verified = law.decode_seconds(work.rows, work.cached);
  if (!speculation.is_used() || work.rows == work.sequences) return verified;
  const double drafted = static_cast<double>(speculation.draft_tokens) * speculation.draft_share;
  return verified + drafted * law.decode_seconds(work.sequences, work.cached);
}

}  // namespace headroom::serving
