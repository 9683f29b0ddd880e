#include "fit/megatron/moves.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "base/parallel.h"
#include "engines/pipeline_layout.h"
#include "fit/megatron/question.h"
#include "fit/megatron/search.h"
#include "fit/prediction.h"
#include "fit/search/method_row.h"
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

  [[nodiscard]] std::vector<std::vector<int64_t>>& layers() {
    return question.megatron->layers_by_stage;
  }
};

const Interval& used_by_fullest(const Stages& stages) {
  return stages[static_cast<size_t>(fullest_stage(stages))].device_used;
}

// What each stage shows, the most first: of two plans the one whose list is less is the roomier.
std::vector<int64_t> by_need(const Stages& stages) {
  std::vector<int64_t> used;
  for (const StageFigures& stage : stages) used.push_back(stage.device_used.expected.count);
  std::ranges::sort(used, std::greater());
  return used;
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
      : any_(any), timer_(timer) {
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
  // One layer from the fullest stage to the emptiest; nothing where that makes no more room.
  [[nodiscard]] std::optional<Plan> with_a_layer_moved(const Plan& plan) const;
  [[nodiscard]] std::optional<PipelineMove> move_to(const Plan& plan) const;

  const Scenario& any_;
  const StepTimer& timer_;
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
  auto outcome = predict_megatron(any_, timer_, plan.question);
  if (outcome) plan.stages = std::move(outcome->stages);
  return bool(outcome);
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
  step::Pipeline pipeline;
  pipeline.chunks = static_cast<int64_t>(plan.question.megatron->layers_by_stage.front().size());
  move.time = pipeline_time(plan.stages, pipeline);
  return move;
}

std::optional<Plan> Mover::with_a_layer_moved(const Plan& plan) const {
  const auto fullest = static_cast<size_t>(fullest_stage(plan.stages));
  const auto emptiest =
      static_cast<size_t>(std::ranges::min_element(plan.stages, {},
                                                   [](const StageFigures& stage) {
                                                     return stage.device_used.expected.count;
                                                   }) -
                          plan.stages.begin());
  Plan moved = plan;
  auto& from = moved.layers()[fullest];
  auto& to = moved.layers()[emptiest];
  if (fullest == emptiest || std::accumulate(from.begin(), from.end(), int64_t{0}) < 2) {
    return std::nullopt;
  }
  --*std::ranges::max_element(from);
  ++*std::ranges::min_element(to);
  if (!predict(moved, {fullest, emptiest})) return std::nullopt;
  if (by_need(moved.stages) >= by_need(plan.stages)) return std::nullopt;
  return moved;
}

// Part c * stages + s of the model is chunk c of stage s.
std::string layout_words(const std::vector<std::vector<int64_t>>& by_stage) {
  std::vector<int64_t> parts;
  for (size_t chunk = 0; chunk < by_stage.front().size(); ++chunk) {
    for (const std::vector<int64_t>& stage : by_stage) parts.push_back(stage[chunk]);
  }
  return engines::pipeline_layout_words(parts);
}

std::optional<PipelineMove> Mover::boundaries() const {
  if (now_.question.megatron->stage.model.decoder_layers > 0) return std::nullopt;
  Plan plan = now_;
  for (size_t step = 0; step < kMostSteps; ++step) {
    auto moved = with_a_layer_moved(plan);
    if (!moved) break;
    plan = std::move(*moved);
  }
  std::optional<PipelineMove> move = move_to(plan);
  if (!move) return move;
  move->name = "stage-boundaries";
  move->title = "layers moved from the fullest stages to those with room";
  move->how = "give Megatron-LM --pipeline-model-parallel-layout '" + layout_words(plan.layers()) +
              "' in place of what else divides layers among stages";
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
  move->how =
      "each process reads its own arguments: start those of " + which +
      " with --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 and "
      "the others without (no run of it was at hand)";
  move->cost = "these stages run their layers forward twice";
  return move;
}

std::optional<PipelineMove> Mover::fewer_chunks() const {
  if (now_.question.megatron->stage.rank.chunks() < 2) return std::nullopt;
  Plan plan = now_;
  for (std::vector<int64_t>& chunks : plan.layers()) {
    chunks = {std::accumulate(chunks.begin(), chunks.end(), int64_t{0})};
  }
  if (!predict_all(plan)) return std::nullopt;
  std::optional<PipelineMove> move = move_to(plan);
  if (!move) return move;
  move->name = "one-chunk-a-stage";
  move->title = "one chunk a stage, not interleaved: fewer micro-batches in flight";
  move->how =
      "leave --num-layers-per-virtual-pipeline-stage, --num-virtual-stages-per-pipeline-rank and a "
      "layout's further parts out";
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
  const std::string batch = std::to_string(plan.question.batch);
  const int64_t all =
      now_.question.batch * now_.question.grad_accum * now_.question.megatron->batches();
  move->name = "half-micro-batch";
  move->title = "half the micro-batch, twice as many: half the sequences in flight";
  move->how = "give Megatron-LM --micro-batch-size " + batch + " and --global-batch-size " +
              std::to_string(all);
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
