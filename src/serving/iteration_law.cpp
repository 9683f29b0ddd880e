#include "serving/iteration_law.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/check.h"

namespace headroom::serving {
namespace {

// The entry at the lower end of the line that holds `x`: the first line below the first entry, the
// last beyond the last. REQUIRES: two entries.
template <typename Knot>
size_t line_of(const std::vector<Knot>& knots, double Knot::*place, double x) {
  const auto above = std::upper_bound(
      knots.begin(), knots.end(), x, [&](double at, const Knot& knot) { return at < knot.*place; });
  const auto index = std::max<std::ptrdiff_t>(above - knots.begin(), 1) - 1;
  return std::min(static_cast<size_t>(index), knots.size() - 2);
}

double along(double x, double from, double to, double at_from, double at_to) {
  return at_from + (at_to - at_from) * (x - from) / (to - from);
}

template <typename Knot>
bool is_increasing(const std::vector<Knot>& knots, double Knot::*place) {
  return std::adjacent_find(knots.begin(), knots.end(), [&](const Knot& a, const Knot& b) {
           return !(a.*place < b.*place);
         }) == knots.end();
}

}  // namespace

IterationLaw::IterationLaw(std::vector<DecodeKnot> decode, double mean_context,
                           std::vector<PromptKnot> prompts)
    : decode_(std::move(decode)), mean_context_(mean_context), prompts_(std::move(prompts)) {
  HEADROOM_CHECK(!decode_.empty(), "a law has steps");
  HEADROOM_CHECK(is_increasing(decode_, &DecodeKnot::sequences), "steps in order");
  HEADROOM_CHECK(is_increasing(prompts_, &PromptKnot::tokens), "prompts in order");
  for (const DecodeKnot& knot : decode_) {
    HEADROOM_CHECK(knot.seconds > 0 && std::isfinite(knot.seconds), "a step takes time");
  }
  if (prompts_.empty()) return;
  HEADROOM_CHECK(prompts_.front().tokens > 0, "a prompt has tokens");
  prompts_.insert(prompts_.begin(), {0, 0});
  for (size_t i = 1; i < prompts_.size(); ++i) {
    HEADROOM_CHECK(std::isfinite(prompts_[i].seconds), "a prompt's time is a number");
    prompts_[i].seconds = std::max(prompts_[i].seconds, prompts_[i - 1].seconds);
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

double IterationLaw::whole_prompt(int64_t tokens) const {
  const auto length = static_cast<double>(tokens);
  const size_t at = line_of(prompts_, &PromptKnot::tokens, length);
  const PromptKnot& low = prompts_[at];
  const PromptKnot& high = prompts_[at + 1];
  return along(length, low.tokens, high.tokens, low.seconds, high.seconds);
}

double IterationLaw::prompt_seconds(int64_t from, int64_t to) const {
  if (prompts_.empty() || to <= from) return 0;
  return whole_prompt(to) - whole_prompt(from);
}

IterationLaw IterationLaw::scaled(double factor) const {
  IterationLaw law = *this;
  for (DecodeKnot& knot : law.decode_) {
    knot.seconds *= factor;
    knot.seconds_per_cached_token *= factor;
  }
  for (PromptKnot& knot : law.prompts_) knot.seconds *= factor;
  return law;
}

}  // namespace headroom::serving
