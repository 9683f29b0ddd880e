#include "fit/search/search.h"

#include <algorithm>
#include <cmath>

#include "fit/positions.h"
#include "fit/stages.h"

namespace headroom::fit {

namespace {

constexpr int64_t kBatchMax = 4096;
constexpr int64_t kSequenceMax = int64_t{1} << 20;
constexpr int64_t kSequenceStep = 64;  // sequences are searched in multiples of this
constexpr int kGuessesMax = 8;         // then halving

// The state of one search, in steps.
class Bracket {
 public:
  explicit Bracket(int64_t most) : most_(most), high_(most + 1) {}

  [[nodiscard]] bool is_open() const { return high_ - low_ > 1; }
  [[nodiscard]] bool is_at_bound() const { return low_ == most_; }
  [[nodiscard]] int64_t low() const { return low_; }

  void found(int64_t steps, bool fits) { (fits ? low_ : high_) = steps; }
  void guess(double steps) {
    const double most = static_cast<double>(most_);
    guess_ = static_cast<int64_t>(std::floor(std::clamp(steps, 0.0, most)));
  }
  // REQUIRES: is_open().
  int64_t next() {
    if (++probes_ > kGuessesMax) return low_ + (high_ - low_) / 2;
    int64_t steps = guess_;
    // A guess at an end of the bracket is taken to be near the border, and the next ones farther.
    if (steps <= low_) {
      steps = low_ + stride_;
      stride_ *= 2;
    } else if (steps >= high_) {
      steps = high_ - stride_;
      stride_ *= 2;
    }
    return std::clamp(steps, low_ + 1, high_ - 1);
  }

 private:
  int64_t most_;
  int64_t low_ = 0;
  int64_t high_;
  int64_t guess_ = 1;
  int64_t stride_ = 1;
  int probes_ = 0;
};

std::optional<Prediction> try_question(const Scenario& scenario, const FitQuestion& question) {
  auto varied = vary_fullest(scenario, question, Figures::where_it_fits);
  if (!varied) return std::nullopt;
  return std::move(varied->prediction);
}

}  // namespace

Largest search_largest(const std::function<std::optional<Prediction>(int64_t)>& attempt,
                       int64_t step, int64_t bound, const KnownValue& known) {
  Largest best;
  const int64_t most = std::max<int64_t>(1, bound / step);
  Bracket bracket(most);
  const auto take = [&](int64_t value, const Prediction& prediction) {
    const bool fits = prediction.verdict == Verdict::yes;
    bracket.guess(static_cast<double>(value) * prediction.growth / static_cast<double>(step));
    if (value % step != 0 || value / step > most) return;
    bracket.found(value / step, fits);
    if (!fits) return;
    best.value = value;
    best.peak_allocated = prediction.peak_allocated;
    best.device_used = prediction.device_used;
  };
  take(known.value, known.prediction);
  while (bracket.is_open()) {
    const int64_t steps = bracket.next();
    if (const auto prediction = attempt(steps * step)) {
      take(steps * step, *prediction);
    } else {
      bracket.found(steps, false);
    }
  }
  best.at_bound = bracket.is_at_bound();
  return best;
}

Result<Largest> largest_batch(const Scenario& scenario, const Prediction& known) {
  return search_largest(
      [&](int64_t batch) {
        FitQuestion question = scenario.question;
        question.batch = batch;
        return try_question(scenario, question);
      },
      1, kBatchMax, {scenario.question.batch, known});
}

Result<Largest> longest_sequence(const Scenario& scenario, const Prediction& known) {
  HEADROOM_ASSIGN(const auto positions, positions_of(scenario));
  const int64_t bound = std::min(kSequenceMax, positions.value_or(kSequenceMax));
  return search_largest(
      [&](int64_t sequence) {
        FitQuestion question = scenario.question;
        question.seq = sequence;
        return try_question(scenario, question);
      },
      std::min(kSequenceStep, bound), bound, {scenario.question.seq, known});
}

}  // namespace headroom::fit
