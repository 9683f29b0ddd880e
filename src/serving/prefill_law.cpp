#include "serving/prefill_law.h"

#include <cmath>
#include <functional>

#include "base/check.h"
#include "serving/knots.h"

namespace headroom::serving {
namespace {

// From nothing on, and never less than before.
template <typename Knot>
void complete(std::vector<Knot>& knots, double Knot::*place) {
  HEADROOM_CHECK(is_increasing(knots, place), "entries in order");
  if (knots.empty()) return;
  HEADROOM_CHECK(knots.front().*place > 0, "the first entry is of something");
  knots.insert(knots.begin(), Knot{0, 0});
  for (size_t i = 1; i < knots.size(); ++i) {
    HEADROOM_CHECK(std::isfinite(knots[i].seconds), "a time is a number");
    knots[i].seconds = std::max(knots[i].seconds, knots[i - 1].seconds);
  }
}

template <typename Knot>
double at(const std::vector<Knot>& knots, double Knot::*place, double x) {
  if (knots.empty()) return 0;
  const size_t line = line_of(knots, place, x);
  const Knot& low = knots[line];
  const Knot& high = knots[line + 1];
  return along(x, low.*place, high.*place, low.seconds, high.seconds);
}

// The mean of seconds(n) over n > 0 of a Poisson distribution.
double mean_over_poisson(double mean, const std::function<double(double)>& seconds) {
  constexpr double kDeviations = 8;
  if (!(mean > 0)) return 0;
  const double spread = kDeviations * std::sqrt(mean) + kDeviations;
  double sum = 0;
  for (double n = std::max(1.0, std::floor(mean - spread)); n <= mean + spread; ++n) {
    sum += std::exp(n * std::log(mean) - mean - std::lgamma(n + 1)) * seconds(n);
  }
  return sum;
}

}  // namespace

PrefillLaw::PrefillLaw(std::vector<RowKnot> rows, std::vector<PromptKnot> attention)
    : rows_(std::move(rows)), attention_(std::move(attention)) {
  HEADROOM_CHECK(!rows_.empty(), "a law of rows");
  complete(rows_, &RowKnot::rows);
  complete(attention_, &PromptKnot::tokens);
}

double PrefillLaw::rows_seconds(int64_t rows, double more) const {
  if (!(more > 0)) return 0;
  const auto beside = static_cast<double>(rows);
  return at(rows_, &RowKnot::rows, beside + more) - at(rows_, &RowKnot::rows, beside);
}

double PrefillLaw::attention_seconds(double from, double to) const {
  if (!(to > from)) return 0;
  return at(attention_, &PromptKnot::tokens, to) - at(attention_, &PromptKnot::tokens, from);
}

PrefillLaw PrefillLaw::scaled(double factor) const {
  PrefillLaw law = *this;
  for (RowKnot& knot : law.rows_) knot.seconds *= factor;
  for (PromptKnot& knot : law.attention_) knot.seconds *= factor;
  return law;
}

double mean_seconds_in_pieces(const PrefillLaw& law, const PromptsMet& met, int64_t most_tokens) {
  const auto most = static_cast<double>(std::max<int64_t>(1, most_tokens - met.rows));
  const double rows = mean_over_poisson(met.mean, [&](double prompts) {
    const double more = prompts * std::max(0.0, met.tokens - 1);
    return more <= most ? law.rows_seconds(met.rows, more)
                        : more / most * law.rows_seconds(met.rows, most);
  });
  return rows + met.mean * law.attention_seconds(0, met.tokens);
}

double mean_seconds_whole(const PrefillLaw& law, const PromptsMet& met, int64_t most_prompts,
                          double reading_seconds) {
  const auto reading = [&](double prompts) {
    if (!(prompts > 0)) return 0.0;
    return reading_seconds +
           law.rows_seconds(static_cast<int64_t>(prompts), prompts * std::max(0.0, met.tokens - 1));
  };
  const auto most = static_cast<double>(most_prompts);
  const double rows = mean_over_poisson(met.mean, [&](double prompts) {
    const double full = std::floor(prompts / most);
    return full * reading(most) + reading(prompts - full * most);
  });
  return rows + met.mean * law.attention_seconds(0, met.tokens);
}

}  // namespace headroom::serving
