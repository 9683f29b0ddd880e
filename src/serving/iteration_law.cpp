#include "serving/iteration_law.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/check.h"
#include "serving/knots.h"

namespace headroom::serving {
IterationLaw::IterationLaw(std::vector<DecodeKnot> decode, double mean_context, PrefillLaw prompts)
    : decode_(std::move(decode)), mean_context_(mean_context), prompts_(std::move(prompts)) {
  HEADROOM_CHECK(!decode_.empty(), "a law has steps");
  HEADROOM_CHECK(is_increasing(decode_, &DecodeKnot::sequences), "steps in order");
  for (const DecodeKnot& knot : decode_) {
    HEADROOM_CHECK(knot.seconds > 0 && std::isfinite(knot.seconds), "a step takes time");
  }
}

double IterationLaw::decode_seconds(int64_t sequences, int64_t cached_tokens) const {
  HEADROOM_CHECK(sequences >= 1, "an iteration has a sequence");
  const auto n = static_cast<double>(sequences);
  double seconds = decode_.front().seconds;
  double of_token = decode_.front().seconds_per_cached_token;
  if (decode_.size() > 1) {
    const size_t at = line_of(decode_, &DecodeKnot::sequences, n);
    const DecodeKnot& low = decode_[at];
    const DecodeKnot& high = decode_[at + 1];
    seconds = along(n, low.sequences, high.sequences, low.seconds, high.seconds);
    of_token = std::max(0.0, along(n, low.sequences, high.sequences, low.seconds_per_cached_token,
                                   high.seconds_per_cached_token));
  }
  const double beside = static_cast<double>(cached_tokens) - n * mean_context_;
  // Beyond its ends a line may go anywhere; a step takes a tenth of the first one at least.
  return std::max(0.1 * decode_.front().seconds, seconds + of_token * beside);
}

}  // namespace headroom::serving
