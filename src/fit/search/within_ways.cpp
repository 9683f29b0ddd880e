#include "fit/search/within_ways.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/parallel.h"
#include "fit/prediction.h"
#include "fit/search/alternatives.h"
#include "fit/stages.h"
#include "fit/time/pipeline_time.h"

namespace headroom::fit {

namespace {

struct Search {
  const Scenario& base;
  const StepTimer& timer;
  SearchCount& count;
};

// A setting of one of the ways.
struct Tried {
  size_t way = 0;  // its place among the candidates
  Candidate candidate;
  std::optional<double> seconds;  // of its step, where it fits for sure
  bool is_filled = false;         // the candidate's row is of this setting
};

// Candidates as they are.
std::vector<Tried> own_settings(const std::vector<Candidate>& candidates) {
  std::vector<Tried> own;
  for (size_t way = 0; way < candidates.size(); ++way) {
    const MethodRow& row = candidates[way].row;
    if (!row.reason.empty()) continue;
    Tried one{way, candidates[way], std::nullopt, true};
    if (row.verdict == Verdict::yes && row.time) one.seconds = row.time->step_seconds.expected;
    own.push_back(std::move(one));
  }
  return own;
}

// Of a Result or an optional.
std::optional<double> seconds_of(const auto& time) {
  return time ? std::optional(time->step_seconds.expected) : std::nullopt;
}

// Of all stages, where there are some; with Figures::where_it_fits as far as they fit for sure. The
// Error is about a setting that cannot be asked.
Result<void> predict_tried(const Search& search, Figures figures, Tried& tried) {
  const FitQuestion& question = tried.candidate.question;
  std::vector<StageFigures> stages;
  step::Pipeline pipeline;
  bool fits = true;
  for (int64_t stage = 0; stage < question.stages; ++stage) {
    HEADROOM_ASSIGN(const Scenario scenario, vary(search.base, at_stage(question, stage)));
    HEADROOM_ASSIGN(const DetailedPrediction detail, predict_with_trace(scenario, figures));
    fits = fits && detail.prediction.verdict == Verdict::yes;
    if (!fits && figures == Figures::where_it_fits) return {};
    if (question.stages == 1) {
      tried.seconds = seconds_of(search.timer.time_of(scenario, detail.trace));
      return {};
    }
    stages.push_back(stage_figures(scenario, search.timer, detail));
    pipeline = scenario.train.pipeline;
  }
  tried.candidate.least_seconds = least_seconds_of(stages);
  if (fits) tried.seconds = seconds_of(pipeline_time(stages, pipeline));
  return {};
}

// Each from `begin` on, on every core.
void predict_from(size_t begin, const Search& search, Figures of_stages,
                  std::vector<Tried>& tried) {
  for_each_in_parallel(tried.size() - begin, 0, [&](size_t i) {
    Tried& one = tried[begin + i];
    const bool has_stages = one.candidate.question.stages > 1;
    const Figures figures = has_stages ? of_stages : Figures::where_it_fits;
    const bool is_predicted = bool(predict_tried(search, figures, one));
    search.count.add_done(is_predicted);
  });
}

// How long a pipeline's stages take is wanted of those that do not fit, too: under another schedule
// they may.
void try_batches(const Search& search, std::vector<Tried>& tried) {
  const size_t own = tried.size();
  for (size_t i = 0; i < own; ++i) {
    const size_t way = tried[i].way;
    for (Candidate& other : with_other_batches(tried[i].candidate)) {
      tried.push_back({way, std::move(other), std::nullopt, false});
    }
  }
  search.count.begin_part(static_cast<int64_t>(tried.size() - own));
  predict_from(own, search, Figures::always, tried);
}

// By way: the fastest that fits for sure, where none does its first; nothing of what was refused.
std::vector<std::optional<size_t>> fastest_of_each(const std::vector<Tried>& tried, size_t ways) {
  std::vector<std::optional<size_t>> fastest(ways);
  const auto rank = [&](size_t i) {
    return tried[i].seconds.value_or(std::numeric_limits<double>::infinity());
  };
  for (size_t i = 0; i < tried.size(); ++i) {
    std::optional<size_t>& best = fastest[tried[i].way];
    if (!best || rank(i) < rank(*best)) best = i;
  }
  return fastest;
}

double fastest_seconds(const std::vector<Tried>& tried) {
  double least = std::numeric_limits<double>::infinity();
  for (const Tried& one : tried) least = std::min(least, one.seconds.value_or(least));
  return least;
}

// Pipelines in each of their micro-batches, in the order in which their schedules are looked at: at
// once those that were chosen under 1F1B, then one by one, what could take least first.
std::vector<std::vector<size_t>> rounds_of(const std::vector<Tried>& tried, size_t ways) {
  const auto fastest = fastest_of_each(tried, ways);
  std::vector<std::vector<size_t>> rounds(1);
  std::vector<size_t> others;
  for (size_t i = 0; i < tried.size(); ++i) {
    if (tried[i].candidate.question.stages == 1) continue;
    (fastest[tried[i].way] == i ? rounds.front() : others).push_back(i);
  }
  std::ranges::stable_sort(others, {}, [&](size_t i) { return tried[i].candidate.least_seconds; });
  for (const size_t i : others) rounds.push_back({i});
  return rounds;
}

// What has no time cannot come first by it.
bool could_beat(const Candidate& candidate, double seconds) {
  return candidate.least_seconds > 0 && candidate.least_seconds < seconds;
}

void try_schedules(const Search& search, size_t ways, std::vector<Tried>& tried) {
  const std::vector<std::vector<size_t>> rounds = rounds_of(tried, ways);
  std::vector<std::vector<Candidate>> others(tried.size());
  int64_t settings = 0;
  for (const std::vector<size_t>& round : rounds) {
    for (const size_t i : round) {
      others[i] = with_other_schedules(tried[i].candidate);
      settings += static_cast<int64_t>(others[i].size());
    }
  }
  search.count.begin_part(settings);
  for (const std::vector<size_t>& round : rounds) {
    const double to_beat = fastest_seconds(tried);
    const size_t begin = tried.size();
    for (const size_t i : round) {
      if (!could_beat(tried[i].candidate, to_beat)) {
        search.count.add_beaten(static_cast<int64_t>(others[i].size()));
        continue;
      }
      const size_t way = tried[i].way;
      for (Candidate& other : others[i]) {
        tried.push_back({way, std::move(other), std::nullopt, false});
      }
    }
    predict_from(begin, search, Figures::where_it_fits, tried);
  }
}

void take_fastest(const Search& search, std::vector<Tried>& tried,
                  std::vector<Candidate>& candidates) {
  const auto fastest = fastest_of_each(tried, candidates.size());
  search.count.begin_part(static_cast<int64_t>(candidates.size()));
  for_each_in_parallel(candidates.size(), 0, [&](size_t way) {
    if (fastest[way] && !tried[*fastest[way]].is_filled) {
      Candidate& candidate = candidates[way];
      candidate = std::move(tried[*fastest[way]].candidate);
      candidate.row.why.clear();
      candidate.row.why_briefly.clear();
      fill(search.base, search.timer, candidate);
    }
    search.count.add_done();
  });
}

}  // namespace

bool leaves_batch_open(const Scenario& scenario) {
  const FitQuestion& question = scenario.question;
  return question.global_batch && !question.given.contains("batch") && !scenario.traced;
}

void choose_within_ways(const Scenario& base, const StepTimer& timer,
                        std::vector<Candidate>& candidates, SearchCount& count) {
  const Search search{base, timer, count};
  std::vector<Tried> tried = own_settings(candidates);
  if (leaves_batch_open(base)) try_batches(search, tried);
  if (!base.question.given.contains("pipeline-schedule")) {
    try_schedules(search, candidates.size(), tried);
  }
  take_fastest(search, tried, candidates);
}

}  // namespace headroom::fit
