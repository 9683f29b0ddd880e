#include "fit/stages.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "base/parallel.h"
#include "fit/search/method_row.h"

namespace headroom::fit {

namespace {

int64_t layers_of(const Scenario& scenario) {
  if (scenario.question.megatron) return scenario.question.megatron->stage.rank.layers();
  int64_t layers = 0;
  for (const model::ModelPart& part : scenario.build.parts) layers += part.layers;
  return layers;
}

}  // namespace

int64_t stage_count(const FitQuestion& question) {
  return question.megatron ? question.megatron->stage.rank.pipeline : question.stages;
}

FitQuestion at_stage(FitQuestion question, int64_t stage) {
  if (question.megatron) {
    question.megatron->look_at(stage);
  } else {
    question.stage = stage;
  }
  return question;
}

FitQuestion without_stages(FitQuestion question) {
  question.stages = question.stage_chunks = 1;
  question.stage = 0;
  question.stage_layers.clear();
  return question;
}

StageFigures stage_figures(const Scenario& scenario, const StepTimer& timer,
                           const DetailedPrediction& detail) {
  const Prediction& prediction = detail.prediction;
  const step::Pipeline& pipeline = scenario.train.pipeline;
  StageFigures figures;
  figures.stage = pipeline.stage;
  figures.layers = layers_of(scenario);
  figures.in_flight =
      static_cast<double>(step::most_in_flight(pipeline, scenario.question.grad_accum)) /
      static_cast<double>(pipeline.chunks);
  figures.peak_allocated = prediction.peak_allocated;
  figures.device_used = prediction.device_used;
  figures.verdict = prediction.verdict;
  if (auto timed = timer.timed(scenario, detail.trace)) {
    figures.time = std::move(timed->time);
    figures.micro_batch_seconds = timed->micro_batch_seconds;
  } else {
    figures.untimed = timed.error().message;
  }
  return figures;
}

namespace {

// How full it is; of equals the first stage counts.
auto fullness_of(const StageFigures& stage) {
  return std::tuple(stage.device_used.expected.count, stage.peak_allocated.count, -stage.stage);
}

// Keeps what was predicted of the fullest of the stages that it is given, by any number of threads.
class Fullest {
 public:
  // Null: nothing is kept.
  explicit Fullest(DetailedPrediction* kept) : kept_(kept) {}
  void take(const StageFigures& stage, DetailedPrediction detail) {
    if (kept_ == nullptr) return;
    const std::lock_guard lock(mutex_);
    if (fullness_ && fullness_of(stage) < *fullness_) return;
    fullness_ = fullness_of(stage);
    *kept_ = std::move(detail);
  }

 private:
  DetailedPrediction* kept_;
  std::mutex mutex_;
  std::optional<decltype(fullness_of(StageFigures()))> fullness_;
};

}  // namespace

Result<std::vector<StageFigures>> stages_of(const Scenario& any, const StepTimer& timer,
                                            const StagesBeside& beside) {
  const auto count = static_cast<size_t>(stage_count(any.question));
  Fullest fullest(beside.fullest);
  std::vector<Result<StageFigures>> made(count, StageFigures());
  for_each_in_parallel(count, 0, [&](size_t i) {
    const auto stage = static_cast<int64_t>(i);
    made[i] = [&]() -> Result<StageFigures> {
      const auto known = std::ranges::find(beside.known, stage, &StageFigures::stage);
      if (known != beside.known.end()) return *known;
      HEADROOM_ASSIGN(const Scenario scenario, vary(any, at_stage(any.question, stage)));
      HEADROOM_ASSIGN(DetailedPrediction detail, predict_with_trace(scenario));
      StageFigures figures = stage_figures(scenario, timer, detail);
      fullest.take(figures, std::move(detail));
      return figures;
    }();
  });
  std::vector<StageFigures> stages;
  for (Result<StageFigures>& stage : made) {
    if (!stage) return stage.error();
    stages.push_back(std::move(*stage));
  }
  return stages;
}

Verdict worst_verdict(const std::vector<StageFigures>& stages) {
  return std::ranges::max_element(stages, {},
                                  [](const StageFigures& stage) { return rank_of(stage.verdict); })
      ->verdict;
}

int64_t fullest_stage(const std::vector<StageFigures>& stages) {
  return std::ranges::max_element(stages, {}, fullness_of)->stage;
}

Result<Varied> vary_fullest(const Scenario& scenario, const FitQuestion& question,
                            Figures figures) {
  std::optional<Varied> fullest;
  // What was the fullest before is likely the fullest again.
  for (int64_t i = 0; i < question.stages; ++i) {
    FitQuestion asked = question;
    if (question.stages > 1) asked.stage = (question.stage + i) % question.stages;
    HEADROOM_ASSIGN(Scenario varied, vary(scenario, asked));
    HEADROOM_ASSIGN(Prediction prediction, predict(varied, figures));
    const auto is_fuller = [&] {
      const Prediction& most = fullest->prediction;
      const int known = rank_of(most.verdict);
      const int here = rank_of(prediction.verdict);
      return here != known ? here > known
                           : prediction.device_used.expected > most.device_used.expected;
    };
    if (!fullest || is_fuller()) fullest = Varied{std::move(varied), std::move(prediction)};
    // What does not fit on one stage is not asked of the others.
    if (figures == Figures::where_it_fits && fullest->prediction.verdict == Verdict::no) break;
  }
  return std::move(*fullest);
}

}  // namespace headroom::fit
