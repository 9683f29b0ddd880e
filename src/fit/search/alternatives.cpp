#include "fit/search/alternatives.h"

#include <algorithm>
#include <string>
#include <utility>

namespace headroom::fit {

namespace {

// The same step in micro-batches of so many sequences.
Result<Candidate> with_batch(const Candidate& candidate, int64_t batch) {
  Candidate other = candidate;
  const int64_t sequences = candidate.question.batch * candidate.question.grad_accum;
  HEADROOM_TRY(other.question.set("batch", std::to_string(batch)));
  HEADROOM_TRY(other.question.set("grad-accum", std::to_string(sequences / batch)));
  other.row.flags += " --batch " + std::to_string(batch);
  return other;
}

// Other micro-batches than the candidate's.
std::vector<int64_t> other_batches_of(const Candidate& candidate) {
  const int64_t sequences = candidate.question.batch * candidate.question.grad_accum;
  std::vector<int64_t> batches;
  for (int64_t batch = 1; batch <= sequences / batch; ++batch) {
    if (sequences % batch != 0) continue;
    for (const int64_t divisor : {batch, sequences / batch}) {
      if (divisor != candidate.question.batch) batches.push_back(divisor);
    }
  }
  std::ranges::sort(batches);
  const auto twice = std::ranges::unique(batches);  // the root of a square
  batches.erase(twice.begin(), twice.end());
  return batches;
}

// Behind the flags so far.
Result<Candidate> with_schedule(const Candidate& candidate, const std::string& schedule) {
  Candidate other = candidate;
  HEADROOM_TRY(other.question.set("pipeline-schedule", schedule));
  other.row.schedule = schedule;
  other.row.flags += " --pipeline-schedule " + schedule;
  return other;
}

// Several parts of the model on each stage, run by turns.
Result<Candidate> interleaved(const Candidate& candidate, int64_t chunks) {
  Candidate other = candidate;
  const std::string before = "--method " + candidate.row.method;
  other.row.method += ",vpp:" + std::to_string(chunks);
  other.row.flags.replace(0, before.size(), "--method " + other.row.method);
  HEADROOM_TRY(other.question.set("method", other.row.method));
  return other;
}

}  // namespace

std::vector<Candidate> with_other_batches(const Candidate& candidate) {
  std::vector<Candidate> others;
  for (const int64_t batch : other_batches_of(candidate)) {
    auto other = with_batch(candidate, batch);
    if (other) others.push_back(std::move(*other));
  }
  return others;
}

std::vector<Candidate> with_other_schedules(const Candidate& candidate) {
  std::vector<Candidate> others;
  const auto add = [&](Result<Candidate> other) {
    if (other) others.push_back(std::move(*other));
  };
  for (const char* const schedule : {"zero-bubble", "zbv", "dualpipev"}) {
    add(with_schedule(candidate, schedule));
  }
  for (const int64_t chunks : {2, 4}) {
    const auto one = interleaved(candidate, chunks);
    if (!one) continue;
    add(*one);
    add(with_schedule(*one, "zero-bubble"));
  }
  return others;
}

}  // namespace headroom::fit
