#include "fit/megatron/search.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/parallel.h"
#include "fit/device/device_used.h"
#include "fit/megatron/question.h"
#include "fit/megatron/scenario.h"
#include "fit/prediction.h"
#include "fit/stages.h"
#include "fit/time/pipeline_time.h"

namespace headroom::fit {

namespace {

constexpr size_t kBatch = 8;  // settings predicted side by side

// How layers and their matrices are shared, whatever the micro-batch and what is recomputed.
auto sharing_of(const MegatronDivision& d) {
  return std::tuple(d.tensor, d.stages, d.context, d.expert, d.expert_tensor);
}

double seconds_of(const MegatronFound& found) { return found.outcome.time.step_seconds.expected; }

// What has no order among the others.
Error no_finite_time(const Scenario& any) {
  return {ErrorCode::unavailable, "a step's time is beyond counting", any.device->name, ""};
}

// As far as communicators are concerned, of a stage that has the fewest: no share of an embedding.
void divide_groups(MegatronSetting& setting, const MegatronDivision& d) {
  divide(setting.stage.rank, d);
  setting.data.data_ranks = d.holders();
  setting.data.expert_ranks = d.gpus() / (d.stages * d.expert * d.expert_tensor);
  setting.data.shares_embedding = false;
}

}  // namespace

Result<MegatronOutcome> predict_megatron(const Scenario& any, const StepTimer& timer,
                                         const FitQuestion& question,
                                         std::vector<StageFigures> known) {
  HEADROOM_ASSIGN(const Scenario scenario, vary(any, question));
  MegatronOutcome outcome;
  HEADROOM_ASSIGN(outcome.stages, stages_of(scenario, timer, {.known = std::move(known)}));
  const auto time = pipeline_time(outcome.stages, pipeline_of(question.megatron->stage.rank));
  if (!time) {
    return Error{ErrorCode::unavailable, "a stage's time is not known", any.device->name, ""};
  }
  if (!std::isfinite(time->step_seconds.expected)) return no_finite_time(any);
  outcome.time = *time;
  outcome.verdict = worst_verdict(outcome.stages);
  const auto fullest = static_cast<size_t>(fullest_stage(outcome.stages));
  outcome.used = outcome.stages[fullest].device_used.expected;
  return outcome;
}

MegatronSearch::MegatronSearch(const Scenario& any, const StepTimer& timer,
                               const MegatronQuestions& questions, const MegatronBounds& bounds,
                               const std::vector<MegatronDivision>& divisions)
    : any_(any), timer_(timer), questions_(questions) {
  candidates_.reserve(divisions.size());
  MegatronSetting setting = *any.question.megatron;
  for (const MegatronDivision& division : divisions) {
    Candidate& candidate = candidates_.emplace_back(Candidate{division, {}, {}});
    divide_groups(setting, division);
    candidate.outside = outside_allocator(*any.device, communicators_of(division.gpus(), setting));
    auto least = bounds.of(division);
    if (least && !std::isfinite(least->seconds)) least = no_finite_time(any);
    if (!least) {
      candidate.fate = Fate::refused;
      if (!refused_) refused_ = least.error();
      continue;
    }
    candidate.least = *least;
    if (any.calibration) candidate.least.bytes = 0;
  }
}

// Of the device: what is allocated, beside the context; but an allocator that meets the device's
// end, where that much fits, goes on with a segment less than there is (prediction.cpp).
Bytes MegatronSearch::least_used(const Candidate& candidate) const {
  const Bytes used = Bytes(candidate.least.bytes) + candidate.outside.expected;
  return used > any_.offered ? used : std::min(used, any_.offered - kLeastSegment);
}

bool MegatronSearch::is_beaten(double seconds, Bytes used) const {
  return std::ranges::any_of(found_, [&](const MegatronFound& found) {
    return seconds_of(found) <= seconds && found.outcome.used <= used;
  });
}

MegatronSearch::Fate MegatronSearch::fate_of(const Candidate& candidate) const {
  if (Bytes(candidate.least.bytes) > any_.offered - candidate.outside.high) return Fate::too_large;
  const bool is_known = is_beaten(candidate.least.seconds, least_used(candidate));
  return is_known ? Fate::beaten : Fate::open;
}

namespace {

struct PredictedStage {
  Scenario scenario;
  DetailedPrediction detail;
};

// The ends of a pipeline, and what is behind its first, up to one that does not fit: what needs
// most is among them, mostly, and most settings do not fit.
Result<std::vector<PredictedStage>> predict_ends(const Scenario& any, const FitQuestion& question) {
  const int64_t stages = question.megatron->stage.rank.pipeline;
  std::vector<PredictedStage> ends;
  for (const int64_t stage : std::set<int64_t>{0, std::min<int64_t>(1, stages - 1), stages - 1}) {
    HEADROOM_ASSIGN(Scenario scenario, vary(any, at_stage(question, stage)));
    HEADROOM_ASSIGN(DetailedPrediction detail,
                    predict_with_trace(scenario, Figures::where_it_fits));
    ends.push_back({std::move(scenario), std::move(detail)});
    if (ends.back().detail.prediction.verdict != Verdict::yes) break;
  }
  return ends;
}

}  // namespace

// One stage's own figures bound the whole better than what was counted.
Result<std::optional<MegatronOutcome>> MegatronSearch::try_candidate(
    const Candidate& candidate) const {
  HEADROOM_ASSIGN(const FitQuestion question, questions_(candidate.division));
  HEADROOM_ASSIGN(const std::vector<PredictedStage> ends, predict_ends(any_, question));
  MegatronOutcome outcome;
  outcome.verdict = ends.back().detail.prediction.verdict;
  if (outcome.verdict != Verdict::yes) return std::optional(outcome);
  std::vector<StageFigures> known;
  for (const PredictedStage& end : ends) {
    known.push_back(stage_figures(end.scenario, timer_, end.detail));
    const StageFigures& figures = known.back();
    if (known.size() > 1 || !figures.time) continue;
    const double seconds = figures.time->step_seconds.expected + candidate.least.waiting_seconds;
    if (is_beaten(std::max(seconds, candidate.least.seconds), figures.device_used.expected)) {
      return std::optional<MegatronOutcome>();
    }
  }
  HEADROOM_ASSIGN(outcome, predict_megatron(any_, timer_, question, std::move(known)));
  return std::optional(std::move(outcome));
}

// None of those that are kept is beaten by another.
void MegatronSearch::add(MegatronFound found) {
  const auto beats = [](const MegatronFound& a, const MegatronFound& b) {
    return seconds_of(a) <= seconds_of(b) && a.outcome.used <= b.outcome.used;
  };
  for (const MegatronFound& other : found_) {
    if (beats(other, found)) return;
  }
  std::erase_if(found_, [&](const MegatronFound& other) { return beats(found, other); });
  const auto place = std::ranges::upper_bound(found_, seconds_of(found), {}, seconds_of);
  found_.insert(place, std::move(found));
}

void MegatronSearch::tell(const SearchProgress& progress, size_t done) {
  state_.done = static_cast<int64_t>(done);
  state_.of = static_cast<int64_t>(candidates_.size());
  if (progress) progress(state_);
}

void MegatronSearch::find_frontier(const SearchProgress& progress) {
  std::ranges::stable_sort(candidates_, {}, [](const Candidate& c) {
    return std::pair(c.least.seconds, c.least.bytes);
  });
  for (size_t next = 0; next < candidates_.size();) {
    std::vector<Candidate*> batch;
    for (; next < candidates_.size() && batch.size() < kBatch; ++next) {
      Candidate& candidate = candidates_[next];
      if (candidate.fate != Fate::refused) candidate.fate = fate_of(candidate);
      if (candidate.fate == Fate::open) {
        batch.push_back(&candidate);
      } else {
        ++state_.passed_over;
      }
    }
    using Tried = Result<std::optional<MegatronOutcome>>;
    std::vector<Tried> outcomes(batch.size(), std::optional<MegatronOutcome>());
    for_each_in_parallel(batch.size(), 0,
                         [&](size_t i) { outcomes[i] = try_candidate(*batch[i]); });
    for (size_t i = 0; i < batch.size(); ++i) {
      batch[i]->fate = outcomes[i] ? Fate::predicted : Fate::refused;
      ++(outcomes[i] ? state_.predicted : state_.passed_over);
      if (!outcomes[i] && !refused_) refused_ = outcomes[i].error();
      if (!outcomes[i]) continue;
      std::optional<MegatronOutcome>& outcome = *outcomes[i];
      batch[i]->fits = !outcome || outcome->verdict == Verdict::yes;
      if (outcome && batch[i]->fits) add({batch[i]->division, std::move(*outcome)});
    }
    tell(progress, next);
  }
}

// REQUIRES: none fits for sure.
void MegatronSearch::find_least(const SearchProgress& progress) {
  std::ranges::stable_sort(candidates_, {}, [](const Candidate& c) {
    return std::pair(c.least.bytes, c.least.seconds);
  });
  for (size_t next = 0; next < candidates_.size();) {
    std::vector<Candidate*> batch;
    for (; next < candidates_.size() && batch.size() < kBatch; ++next) {
      Candidate& candidate = candidates_[next];
      if (candidate.fate == Fate::refused) continue;
      const bool is_no_less =
          !found_.empty() && found_.front().outcome.used <= least_used(candidate);
      if (is_no_less) break;
      batch.push_back(&candidate);
    }
    if (batch.empty()) break;
    std::vector<Result<MegatronOutcome>> outcomes(batch.size(), MegatronOutcome());
    for_each_in_parallel(batch.size(), 0, [&](size_t i) {
      const auto question = questions_(batch[i]->division);
      outcomes[i] = question ? predict_megatron(any_, timer_, *question) : question.error();
    });
    for (size_t i = 0; i < batch.size(); ++i) {
      const int was_predicted = batch[i]->fate == Fate::predicted ? 1 : 0;
      batch[i]->fate = outcomes[i] ? Fate::predicted : Fate::refused;
      const int more = (outcomes[i] ? 1 : 0) - was_predicted;
      state_.predicted += more;
      state_.passed_over -= more;
      if (!outcomes[i] && !refused_) refused_ = outcomes[i].error();
      if (!outcomes[i]) continue;
      const bool is_less = found_.empty() || outcomes[i]->used < found_.front().outcome.used;
      if (is_less) found_ = {{batch[i]->division, std::move(*outcomes[i])}};
    }
    tell(progress, next);
  }
}

Result<void> MegatronSearch::run(const SearchProgress& progress) {
  find_frontier(progress);
  if (found_.empty()) find_least(progress);
  if (!found_.empty()) return {};
  HEADROOM_CHECK(refused_.has_value(), "a setting is found, or refused");
  return *refused_;
}

std::vector<MegatronDivision> MegatronSearch::too_fast(size_t most) const {
  std::vector<const Candidate*> faster;
  for (const Candidate& candidate : candidates_) {
    const bool fits_not =
        candidate.fate == Fate::too_large || (candidate.fate == Fate::predicted && !candidate.fits);
    const bool is_faster = found_.empty() || candidate.least.seconds < seconds_of(found_.front());
    if (fits_not && is_faster) faster.push_back(&candidate);
  }
  std::ranges::stable_sort(faster, {}, [](const Candidate* c) { return c->least.bytes; });
  std::vector<MegatronDivision> nearest;
  std::set<decltype(sharing_of(MegatronDivision()))> sharings;
  // Where none fits, what was found is among them.
  if (!found_.empty()) sharings.insert(sharing_of(found_.front().division));
  for (const Candidate* candidate : faster) {
    if (nearest.size() == most) break;
    if (sharings.insert(sharing_of(candidate->division)).second) {
      nearest.push_back(candidate->division);
    }
  }
  return nearest;
}

Searched MegatronSearch::counts() const {
  Searched counts;
  counts.settings = static_cast<int64_t>(candidates_.size());
  for (const Candidate& candidate : candidates_) {
    if (candidate.fate == Fate::predicted) ++counts.predicted;
    if (candidate.fate == Fate::too_large) ++counts.too_large;
    if (candidate.fate == Fate::beaten) ++counts.beaten;
    if (candidate.fate == Fate::refused) ++counts.refused;
  }
  return counts;
}

}  // namespace headroom::fit
