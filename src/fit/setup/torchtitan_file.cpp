#include "fit/setup/torchtitan_file.h"

#include <optional>
#include <string>

#include "base/file.h"
#include "engines/torchtitan.h"
#include "fit/scenario/scenario.h"
#include "fit/setup/setup_file.h"

namespace headroom::fit {

namespace {

using engines::Half;

constexpr int64_t kLossChunks = 8;  // torchtitan's own

const Checkpointing kSelective{.kind = CheckpointingKind::selective, .but_every = 2};

// torch.optim takes the loop where parameters are DTensors.
std::string loop_of(OptimizerLoop loop) {
  return loop == OptimizerLoop::fused     ? "fused"
         : loop == OptimizerLoop::foreach ? "foreach"
                                          : "loop";
}

engines::StageSchedule schedule_of(step::PipelineSchedule schedule) {
  using engines::StageSchedule;
  using step::PipelineSchedule;
  switch (schedule) {
    case PipelineSchedule::gpipe:
      return StageSchedule::gpipe;
    case PipelineSchedule::zero_bubble:
      return StageSchedule::zero_bubble;
    case PipelineSchedule::zero_bubble_v:
      return StageSchedule::zero_bubble_v;
    case PipelineSchedule::dual_pipe_v:
      return StageSchedule::dual_pipe_v;
    case PipelineSchedule::one_forward_one_backward:
      break;
  }
  return StageSchedule::one_forward_one_backward;
}

bool has_whole_logits(Loss loss) { return loss == Loss::automatic || loss == Loss::hf; }

engines::TrainingSetup setup_of(const FitQuestion& q) {
  engines::TrainingSetup setup;
  setup.sharing = engines::Sharing::fsdp2;
  setup.ranks = q.ranks;
  setup.replicas = q.replicas;
  setup.context_ranks = q.context_ranks;
  setup.tensor_ranks = q.tensor_ranks;
  setup.stages = q.stages;
  setup.stage_chunks = parts_of_stage(q);
  setup.schedule = schedule_of(q.schedule);
  setup.nodes = q.nodes;
  setup.model = q.model;
  setup.batch = q.batch;
  setup.sequence = q.seq;
  setup.grad_accum = micro_batches_of(q);
  setup.clip = q.clip;
  setup.mixed_precision = q.mixed_precision == MixedPrecision::bf16 ? Half::bf16 : Half::none;
  setup.weights = q.dtype == Dtype::bf16 ? Half::bf16 : Half::none;
  setup.checkpoints = q.checkpointing.kind != CheckpointingKind::none;
  setup.checkpoints_half_the_products = q.checkpointing == kSelective;
  setup.offloads_parameters = offloads_parameters(q);
  setup.optimizer_loop = loop_of(q.optimizer_loop);
  if (q.allocator != kPlannedAllocator) setup.allocator = q.allocator;
  setup.reshards = q.reshards != step::Reshards::none;
  setup.compiles_layers = q.compile.layers;
  setup.compiles_loss = q.compile.loss;
  setup.loss_chunks = has_whole_logits(q.loss)       ? 1
                      : q.loss == Loss::chunked_head ? q.loss_chunks
                                                     : kLossChunks;
  return setup;
}

// What torchtitan's configurations say, and no argument of its.
std::vector<std::string> by_hand(const FitQuestion& q) {
  std::vector<std::string> flags;
  if (q.reduce_dtype != Dtype::fp32) flags.emplace_back("reduce-dtype");
  if (q.reshards == step::Reshards::all_but_last_layer) flags.emplace_back("reshard-after-forward");
  if (!q.clip) flags.emplace_back("clip");
  if (q.grad_accum > 1 && !syncs_each_batch(q)) flags.emplace_back("sync-each-batch");
  if (q.optimizer != Optimizer::adamw) flags.emplace_back("optimizer");
  if (!has_whole_logits(q.loss) && q.loss != Loss::chunked_head) flags.emplace_back("loss");
  if (q.given.contains("attention") && q.attention != Attention::sdpa) {
    flags.emplace_back("attention");
  }
  for (const char* flag : {"float8", "kernels", "optimizer-in-backward", "freeze", "vocab"}) {
    if (q.given.contains(flag)) flags.emplace_back(flag);
  }
  return flags;
}

// Stages or tensor parallel ranks, and nothing shared out: torchtitan calls fully_shard all the
// same (models/llama3/parallelize.py), on one rank.
bool becomes_fully_shard(const FitQuestion& q) {
  return q.division == Division::none && q.tensor_ranks * q.stages > 1;
}

// What torchtitan has no words for: why, and what to ask in its place.
struct Unsaid {
  std::string why;
  std::string instead;
};

std::optional<Unsaid> unsaid_division(const FitQuestion& q) {
  if (q.division != Division::fsdp2 && !becomes_fully_shard(q)) {
    return Unsaid{"torchtitan divides a step by fully_shard", "--method fsdp2:N"};
  }
  if (q.tensor_ranks == 1 || q.sequence_parallel) return std::nullopt;
  return Unsaid{"torchtitan's tensor parallel ranks are taken to divide sequences, too",
                "--sequence-parallel true"};
}

std::optional<Unsaid> unsaid(const FitQuestion& q) {
  if (auto reason = unsaid_division(q)) return reason;
  if (q.method != Method::full) {
    return Unsaid{
        "torchtitan has no argument for adapters: a configuration of one's own does "
        "(components/lora.py)",
        "leave " + method_word(q) + " out"};
  }
  if (q.classifies) {
    return Unsaid{"torchtitan's models have a head over the vocabulary, not over classes",
                  "--emit accelerate"};
  }
  if (q.mixed_precision == MixedPrecision::fp16 ||
      (q.mixed_precision == MixedPrecision::none && q.dtype == Dtype::fp16)) {
    return Unsaid{"torchtitan computes in bf16 or float32", "--dtype bf16 or fp32"};
  }
  const CheckpointingKind kind = q.checkpointing.kind;
  if (kind != CheckpointingKind::none && kind != CheckpointingKind::full &&
      q.checkpointing != kSelective) {
    return Unsaid{
        "torchtitan recomputes nothing, whole layers, or all of them but every other product",
        "--checkpointing none, full or selective-every-2"};
  }
  if (!q.stage_layers.empty()) {
    return Unsaid{
        "torchtitan has no argument for the layers of each stage: a configuration of one's own "
        "does (parallelism.module_fqns_per_model_part)",
        "leave --stage-layers out"};
  }
  if (q.stages > 1 && !has_whole_logits(q.loss)) {
    return Unsaid{"beside a pipeline torchtitan's loss is of whole logits", "--loss hf"};
  }
  return std::nullopt;
}

}  // namespace

Result<void> check_torchtitan(const FitQuestion& question) {
  if (const auto reason = unsaid(question)) {
    return Error{ErrorCode::usage, reason->why, "--emit torchtitan", reason->instead};
  }
  HEADROOM_TRY(engines::torchtitan_script(setup_of(question)));
  return {};
}

Result<Emitted> emit_torchtitan(const FitQuestion& question, const EmitRequest& request) {
  const engines::TrainingSetup setup = setup_of(question);
  HEADROOM_ASSIGN(const std::string script, engines::torchtitan_script(setup));
  Emitted emitted;
  emitted.kind = request.kind;
  emitted.file = request.file;
  emitted.command = engines::torchtitan_line(setup, request.file);
  emitted.by_hand = by_hand(question);
  if (!shards_ends(question) && question.stages == 1) {
    emitted.notes.push_back(request.kind + std::string(kShardsEnds));
  }
  if (becomes_fully_shard(question)) {
    emitted.notes.push_back(
        "torchtitan runs fully_shard on one rank, too, which copies its weights to use them: "
        "--method fsdp2:1" +
        division_words(question));
  }
  if (question.allocator == kPlannedAllocator) emitted.notes.emplace_back(kNoPlan);
  HEADROOM_TRY(write_file_atomic(request.file, script));
  return emitted;
}

}  // namespace headroom::fit
