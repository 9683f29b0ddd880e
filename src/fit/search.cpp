#include "fit/search.h"

#include <algorithm>
#include <functional>

namespace headroom::fit {

namespace {

constexpr int64_t kBatchMax = 4096;
constexpr int64_t kSequenceMax = int64_t{1} << 20;
constexpr int64_t kSequenceStep = 64;  // sequences are searched in multiples of this

struct Probe {
  bool fits = false;
  Prediction prediction;
};

using Try = std::function<Probe(int64_t)>;

// The largest multiple of `step` up to `bound` for which `attempt` fits.
Largest search(const Try& attempt, int64_t step, int64_t bound) {
  Largest best;
  int64_t low = 0;  // fits, in steps
  int64_t high = 1;
  const int64_t most = std::max<int64_t>(1, bound / step);
  const auto accept = [&](int64_t steps, const Probe& probe) {
    low = steps;
    best.value = steps * step;
    best.peak_allocated = probe.prediction.peak_allocated;
    best.device_used = probe.prediction.device_used;
  };
  while (true) {
    const Probe probe = attempt(high * step);
    if (!probe.fits) break;
    accept(high, probe);
    if (high == most) {
      best.at_bound = true;
      return best;
    }
    high = std::min(high * 2, most);
  }
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    const Probe probe = attempt(middle * step);
    if (probe.fits) {
      accept(middle, probe);
    } else {
      high = middle;
    }
  }
  return best;
}

Probe try_question(const Scenario& scenario, const FitQuestion& question) {
  const auto varied = vary(scenario, question);
  if (!varied) return {};
  const auto prediction = predict(*varied);
  if (!prediction) return {};
  return {prediction->verdict == Verdict::yes, *prediction};
}

}  // namespace

Result<Largest> largest_batch(const Scenario& scenario) {
  return search(
      [&](int64_t batch) {
        FitQuestion question = scenario.question;
        question.batch = batch;
        return try_question(scenario, question);
      },
      1, kBatchMax);
}

Result<Largest> longest_sequence(const Scenario& scenario) {
  const text::JsonView config = scenario.model->view();
  int64_t bound = kSequenceMax;
  for (const char* key : {"max_position_embeddings", "n_positions", "n_ctx"}) {
    HEADROOM_ASSIGN(const auto positions, config.optional_int(key, 1, kSequenceMax));
    if (positions) {
      bound = *positions;
      break;
    }
  }
  return search(
      [&](int64_t sequence) {
        FitQuestion question = scenario.question;
        question.seq = sequence;
        return try_question(scenario, question);
      },
      std::min(kSequenceStep, bound), bound);
}

}  // namespace headroom::fit
