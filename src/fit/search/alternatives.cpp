#include "fit/search/alternatives.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "base/parallel.h"
#include "fit/prediction.h"
#include "fit/stages.h"
#include "fit/time/pipeline_time.h"

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

std::vector<Candidate> with_other_batches(const Candidate& candidate) {
  std::vector<Candidate> others;
  for (const int64_t batch : other_batches_of(candidate)) {
    auto other = with_batch(candidate, batch);
    if (other) others.push_back(std::move(*other));
  }
  return others;
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

// One of a candidate's alternatives: its step's time where it fits for sure.
struct Tried {
  size_t place = 0;  // of the way among the candidates
  Candidate candidate;
  std::optional<double> seconds;
};

// Of all stages, where there are some. The Error is about a setting that cannot be asked.
Result<std::optional<double>> seconds_where_it_fits(const Scenario& base, const StepTimer& timer,
                                                    const FitQuestion& question) {
  const auto seconds_of = [](const auto& time) {
    return time ? std::optional(time->step_seconds.expected) : std::nullopt;
  };
  std::vector<StageFigures> stages;
  step::Pipeline pipeline;
  for (int64_t stage = 0; stage < question.stages; ++stage) {
    HEADROOM_ASSIGN(const Scenario scenario, vary(base, at_stage(question, stage)));
    HEADROOM_ASSIGN(const DetailedPrediction detail,
                    predict_with_trace(scenario, Figures::where_it_fits));
    if (detail.prediction.verdict != Verdict::yes) return std::optional<double>();
    if (question.stages == 1) return seconds_of(timer.time_of(scenario, detail.trace));
    stages.push_back(stage_figures(scenario, timer, detail));
    pipeline = scenario.train.pipeline;
  }
  return seconds_of(pipeline_time(stages, pipeline));
}

// The step's time of what fits for sure.
std::optional<double> seconds_of_fitting(const Candidate& candidate) {
  const MethodRow& row = candidate.row;
  if (!row.reason.empty() || row.verdict != Verdict::yes || !row.time) return std::nullopt;
  return row.time->step_seconds.expected;
}

// By place: the fastest that fits and is faster than the candidate itself; null where none is.
std::vector<const Tried*> fastest_of(const std::vector<Tried>& all,
                                     const std::vector<Candidate>& candidates) {
  std::vector<const Tried*> fastest(candidates.size(), nullptr);
  for (const Tried& tried : all) {
    const Tried*& best = fastest[tried.place];
    const auto own = seconds_of_fitting(candidates[tried.place]);
    const bool is_faster = tried.seconds && (!own || *tried.seconds < *own) &&
                           (best == nullptr || *tried.seconds < *best->seconds);
    if (is_faster) best = &tried;
  }
  return fastest;
}

using Alternatives = std::function<std::vector<Candidate>(const Candidate&)>;

// Puts the fastest alternative in the place of each candidate that it beats.
void choose(const Scenario& base, const StepTimer& timer, const Alternatives& alternatives_of,
            std::vector<Candidate>& candidates, SearchCount& count) {
  std::vector<Tried> all;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!candidates[i].row.reason.empty()) continue;
    for (Candidate& other : alternatives_of(candidates[i])) {
      all.push_back({i, std::move(other), std::nullopt});
    }
  }
  count.begin_part(static_cast<int64_t>(all.size()));
  for_each_in_parallel(all.size(), 0, [&](size_t i) {
    const auto seconds = seconds_where_it_fits(base, timer, all[i].candidate.question);
    if (seconds) all[i].seconds = *seconds;
    count.add_done(bool(seconds));
  });
  const std::vector<const Tried*> fastest = fastest_of(all, candidates);
  count.begin_part(static_cast<int64_t>(candidates.size()));
  for_each_in_parallel(candidates.size(), 0, [&](size_t i) {
    if (fastest[i] != nullptr) {
      candidates[i] = fastest[i]->candidate;
      candidates[i].row.why.clear();
      candidates[i].row.why_briefly.clear();
      fill(base, timer, candidates[i]);
    }
    count.add_done();
  });
}

double least_of_fitting(const std::vector<Candidate>& candidates) {
  double least = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : candidates) {
    if (const auto seconds = seconds_of_fitting(candidate)) least = std::min(least, *seconds);
  }
  return least;
}

}  // namespace

bool leaves_batch_open(const Scenario& scenario) {
  const FitQuestion& question = scenario.question;
  return question.global_batch && !question.given.contains("batch") && !scenario.traced;
}

void choose_batches(const Scenario& base, const StepTimer& timer,
                    std::vector<Candidate>& candidates, SearchCount& count) {
  choose(base, timer, with_other_batches, candidates, count);
}

void choose_schedules(const Scenario& base, const StepTimer& timer,
                      std::vector<Candidate>& candidates, SearchCount& count) {
  if (base.question.given.contains("pipeline-schedule")) return;
  const double to_beat = least_of_fitting(candidates);
  const auto could_be_first = [&](const Candidate& candidate) {
    return candidate.question.stages > 1 && candidate.least_seconds < to_beat;
  };
  choose(
      base, timer,
      [&](const Candidate& candidate) {
        return could_be_first(candidate) ? with_other_schedules(candidate)
                                         : std::vector<Candidate>();
      },
      candidates, count);
}

}  // namespace headroom::fit
