#include "fit/search/moves.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "base/parallel.h"
#include "fit/prediction.h"
#include "fit/search/method_row.h"
#include "fit/search/pipeline_settings.h"
#include "fit/stages.h"
#include "fit/time/pipeline_time.h"

namespace headroom::fit {

namespace {

using Stages = std::vector<StageFigures>;

// What saves less than this part of what is used changes no answer.
constexpr int64_t kLeastPart = 1000;
// Of layers, one after the other: each takes two predictions.
constexpr size_t kMostSteps = 64;

// A pipeline, and its stages as they were predicted.
struct Plan {
  FitQuestion question;
  std::vector<CheckpointingKind> recomputation;  // by stage
  Stages stages;
};

const Interval& used_by_fullest(const Stages& stages) {
  return stages[static_cast<size_t>(fullest_stage(stages))].device_used;
}

// What each stage shows and, where the allocator's cache goes up to what there is, allocates; the
// most first. Of two plans the one whose list is less is the roomier.
std::vector<std::pair<int64_t, int64_t>> by_need(const Stages& stages) {
  std::vector<std::pair<int64_t, int64_t>> need;
  for (const StageFigures& stage : stages) {
    need.emplace_back(stage.device_used.expected.count, stage.peak_allocated.count);
  }
  std::ranges::sort(need, std::greater());
  return need;
}

std::string joined(const std::vector<size_t>& stages) {
  std::string words;
  for (const size_t stage : stages) {
    words += (words.empty() ? "" : ", ") + std::to_string(stage);
  }
  return words;
}

class Mover {
 public:
  Mover(const Scenario& any, const StepTimer& timer, const Stages& stages)
      : any_(any), timer_(timer), settings_(pipeline_settings(any)) {
    now_.question = any.question;
    now_.recomputation.assign(stages.size(), any.question.checkpointing.kind);
    now_.stages = stages;
  }

  [[nodiscard]] std::optional<PipelineMove> boundaries() const;
  [[nodiscard]] std::optional<PipelineMove> recomputation() const;
  [[nodiscard]] std::optional<PipelineMove> fewer_chunks() const;
  [[nodiscard]] std::optional<PipelineMove> half_micro_batch() const;

 private:
  [[nodiscard]] Result<StageFigures> figures(const Plan& plan, size_t stage) const;
  // Predicts these stages again; false where one of them cannot be asked.
  [[nodiscard]] bool predict(Plan& plan, const std::vector<size_t>& stages) const;
  // All of them, where each recomputes what the question says.
  [[nodiscard]] bool predict_all(Plan& plan) const;
  // One layer from the fullest stage to the emptiest; false where that makes no more room, and both
  // are as they were.
  [[nodiscard]] bool move_a_layer(StageLayers& layers, Plan& plan) const;
  [[nodiscard]] std::optional<PipelineMove> move_to(const Plan& plan) const;

  const Scenario& any_;
  const StepTimer& timer_;
  std::unique_ptr<PipelineSettings> settings_;
  Plan now_;
};

Result<StageFigures> Mover::figures(const Plan& plan, size_t stage) const {
  FitQuestion asked = at_stage(plan.question, static_cast<int64_t>(stage));
  asked.checkpointing.kind = plan.recomputation[stage];
  HEADROOM_ASSIGN(const Scenario scenario, vary(any_, asked));
  HEADROOM_ASSIGN(const DetailedPrediction detail, predict_with_trace(scenario));
  return stage_figures(scenario, timer_, detail);
}

bool Mover::predict(Plan& plan, const std::vector<size_t>& stages) const {
  std::vector<Result<StageFigures>> made(stages.size(), StageFigures());
  for_each_in_parallel(stages.size(), 0, [&](size_t i) { made[i] = figures(plan, stages[i]); });
  for (size_t i = 0; i < stages.size(); ++i) {
    if (!made[i]) return false;
    plan.stages[stages[i]] = std::move(*made[i]);
  }
  return true;
}

bool Mover::predict_all(Plan& plan) const {
  const auto scenario = vary(any_, plan.question);
  if (!scenario) return false;
  auto stages = stages_of(*scenario, timer_);
  if (stages) plan.stages = std::move(*stages);
  return bool(stages);
}

// Nothing where it saves next to nothing.
std::optional<PipelineMove> Mover::move_to(const Plan& plan) const {
  const Bytes before = used_by_fullest(now_.stages).expected;
  PipelineMove move;
  move.device_used = used_by_fullest(plan.stages);
  move.saves = before - move.device_used.expected;
  if (move.saves.count <= before.count / kLeastPart) return std::nullopt;
  move.stages = plan.stages;
  move.verdict = worst_verdict(plan.stages);
  const auto scenario = vary(any_, plan.question);
  if (!scenario) return std::nullopt;
  move.time = pipeline_time(plan.stages, scenario->train.pipeline);
  return move;
}

bool Mover::move_a_layer(StageLayers& layers, Plan& plan) const {
  const auto fullest = static_cast<size_t>(fullest_stage(plan.stages));
  const auto emptiest =
      static_cast<size_t>(std::ranges::min_element(plan.stages, {},
                                                   [](const StageFigures& stage) {
                                                     return stage.device_used.expected.count;
                                                   }) -
                          plan.stages.begin());
  StageLayers changed = layers;
  auto& from = changed[fullest];
  auto& to = changed[emptiest];
  if (fullest == emptiest || std::accumulate(from.begin(), from.end(), int64_t{0}) < 2) {
    return false;
  }
  --*std::ranges::max_element(from);
  ++*std::ranges::min_element(to);
  Plan moved = plan;
  settings_->set_layers(changed, moved.question);
  if (!predict(moved, {fullest, emptiest})) return false;
  if (by_need(moved.stages) >= by_need(plan.stages)) return false;
  layers = std::move(changed);
  plan = std::move(moved);
  return true;
}

std::optional<PipelineMove> Mover::boundaries() const {
  auto layers = settings_->layers();
  if (!layers) return std::nullopt;
  Plan plan = now_;
  for (size_t step = 0; step < kMostSteps && move_a_layer(*layers, plan); ++step) {
  }
  std::optional<PipelineMove> move = move_to(plan);
  if (!move) return move;
  move->name = "stage-boundaries";
  move->title = "layers moved from the fullest stages to those with room";
  move->how = settings_->layers_how(*layers);
  move->cost = "a stage with more layers may be the slowest";
  return move;
}

// From the fullest stage on, until all fit for sure; one alone, where they do already.
std::optional<PipelineMove> Mover::recomputation() const {
  Plan plan = now_;
  std::vector<size_t> changed;
  do {
    const auto fullest = static_cast<size_t>(fullest_stage(plan.stages));
    if (plan.recomputation[fullest] == CheckpointingKind::full) break;
    plan.recomputation[fullest] = CheckpointingKind::full;
    if (!predict(plan, {fullest})) return std::nullopt;
    changed.push_back(fullest);
  } while (worst_verdict(plan.stages) != Verdict::yes);
  // All of them is what --checkpointing full says.
  if (changed.empty() || changed.size() == plan.stages.size()) return std::nullopt;
  std::optional<PipelineMove> move = move_to(plan);
  if (!move) return move;
  std::ranges::sort(changed);
  const std::string which = (changed.size() == 1 ? "stage " : "stages ") + joined(changed);
  move->name = "recompute-fullest-stages";
  move->title = "recompute every layer on " + which + " alone";
  move->how = settings_->recomputation_how(which);
  move->cost = "these stages run their layers forward twice";
  return move;
}

std::optional<PipelineMove> Mover::fewer_chunks() const {
  if (!settings_->has_chunks()) return std::nullopt;
  Plan plan = now_;
  settings_->set_one_chunk(plan.question);
  if (!predict_all(plan)) return std::nullopt;
  std::optional<PipelineMove> move = move_to(plan);
  if (!move) return move;
  move->name = "one-chunk-a-stage";
  move->title = "one chunk a stage, not interleaved: fewer micro-batches in flight";
  move->how = settings_->one_chunk_how();
  move->cost = "stages wait longer for each other";
  return move;
}

std::optional<PipelineMove> Mover::half_micro_batch() const {
  Plan plan = now_;
  if (plan.question.batch < 2 || plan.question.batch % 2 != 0) return std::nullopt;
  plan.question.batch /= 2;
  plan.question.grad_accum *= 2;
  if (!predict_all(plan)) return std::nullopt;
  std::optional<PipelineMove> move = move_to(plan);
  if (!move) return move;
  move->name = "half-micro-batch";
  move->title = "half the micro-batch, twice as many: half the sequences in flight";
  move->how = settings_->micro_batch_how(plan.question);
  move->cost = "smaller matrix products";
  return move;
}

}  // namespace

std::vector<PipelineMove> pipeline_moves(const Scenario& any, const StepTimer& timer,
                                         const std::vector<StageFigures>& stages) {
  const Mover mover(any, timer, stages);
  std::vector<PipelineMove> moves;
  for (auto& move : {mover.boundaries(), mover.recomputation(), mover.fewer_chunks(),
                     mover.half_micro_batch()}) {
    if (move) moves.push_back(*move);
  }
  std::ranges::stable_sort(moves, std::greater(), &PipelineMove::saves);
  return moves;
}

}  // namespace headroom::fit
