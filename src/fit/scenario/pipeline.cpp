#include "fit/scenario/pipeline.h"

#include <algorithm>
#include <string>

#include "fit/scenario/errors.h"
#include "fit/scenario/stage_layers.h"
#include "step/model_parts.h"

namespace headroom::fit {

namespace {

// schedule.step(return_outputs=True), where somebody says so.
bool returns_outputs(const FitQuestion& q) {
  return q.keep_outputs && q.given.contains("keep-outputs");
}

bool is_single(const FitQuestion& q) {
  step::Pipeline pipeline;
  pipeline.chunks = parts_of_stage(q);
  pipeline.schedule = q.schedule;
  return pipeline.is_single();
}

// schedules.py: as many rounds as the stages go into the micro-batches, at least one.
int64_t rounds_of(const FitQuestion& q) { return std::max<int64_t>(1, q.grad_accum / q.stages); }

constexpr int64_t kMostMicroBatches = 65'536;
constexpr int64_t kMostMicroBatchesRun = 256;

std::string words(int64_t number) { return std::to_string(number); }

// All micro-batches are held, or their outputs are: a few do not stand for many.
bool runs_each_micro_batch(const FitQuestion& q) {
  return q.schedule == step::PipelineSchedule::gpipe || returns_outputs(q);
}

Result<void> check_mirrored(const FitQuestion& q) {
  if (q.stage_chunks > 2) {
    return contradiction("method", "mirrored schedules have two parts of the model on each stage",
                         "vpp:2, or leave it out");
  }
  if (q.schedule == step::PipelineSchedule::dual_pipe_v && q.grad_accum < 2 * q.stages) {
    return contradiction(
        "grad-accum", "DualPipeV runs at least two micro-batches a stage",
        "--grad-accum " + words(2 * q.stages) + " or more, or a --global-batch of as many");
  }
  return {};
}

// What a schedule's constructor refuses, and what would take too long: stages have buffers for each
// micro-batch, and some schedules' are run each.
Result<void> check_micro_batches(const FitQuestion& q) {
  const int64_t most = runs_each_micro_batch(q) ? kMostMicroBatchesRun : kMostMicroBatches;
  if (q.grad_accum > most) {
    return contradiction("grad-accum",
                         std::string(runs_each_micro_batch(q) ? "GPipe's step, or one that returns "
                                                                "outputs,"
                                                              : "a pipeline's step") +
                             " is modelled up to " + words(most) + " micro-batches",
                         "a larger --batch");
  }
  if (step::is_mirrored(q.schedule)) return check_mirrored(q);
  const bool is_plain = is_single(q);
  if (is_plain && q.schedule != step::PipelineSchedule::gpipe && q.grad_accum < q.stages) {
    return contradiction("grad-accum",
                         "1F1B runs at least as many micro-batches as there are stages",
                         "--grad-accum " + words(q.stages) + " or more");
  }
  if (!is_plain && q.grad_accum % rounds_of(q) != 0) {
    return contradiction("grad-accum",
                         words(q.grad_accum) + " micro-batches do not divide into rounds of " +
                             words(q.stages) + " stages",
                         "a multiple of the stages");
  }
  return {};
}

// fully_shard within each stage, as torchtitan has it with pipelines.
Result<void> check_division_of_stages(const FitQuestion& q) {
  if (q.division == Division::none && q.tensor_ranks == 1) return {};
  if (q.division != Division::fsdp2 || q.replicas > 1) {
    return unsupported("method", "a pipeline together with another way to divide than fsdp2:N",
                       "tp:N and cp:N may stand beside that");
  }
  if (q.tensor_ranks > 1 && !q.sequence_parallel) {
    return unsupported("method", "transformers' tensor parallelism in a pipeline",
                       "--sequence-parallel true is");
  }
  return {};
}

}  // namespace

void fill_stages(Scenario& s) {
  FitQuestion& q = s.question;
  const int64_t micro_batches = micro_batches_of(q);
  if (micro_batches == q.grad_accum) return;
  q.grad_accum = micro_batches;
  s.derived.push_back({"grad-accum", words(q.grad_accum), SettingOrigin::derived});
}

void set_pipeline(Scenario& s) {
  const FitQuestion& q = s.question;
  step::TrainOptions& train = s.train;
  step::Pipeline& pipeline = train.pipeline;
  pipeline.stages = q.stages;
  pipeline.stage = q.stage;
  pipeline.chunks = parts_of_stage(q);
  pipeline.group = q.grad_accum / rounds_of(q);
  pipeline.schedule = q.schedule;
  pipeline.engine = step::PipelineEngine::torch;
  pipeline.micro_batches = q.grad_accum;
  train.keep_outputs = returns_outputs(q);
  if (!train.keep_outputs) s.derived.push_back({"keep-outputs", "false", SettingOrigin::derived});
  // Outputs are the last stage's.
  const int64_t last = step::is_mirrored(q.schedule) ? 0 : q.stages - 1;
  const bool runs_each = train.keep_outputs && q.stage == last;
  train.accumulation = runs_each ? q.grad_accum
                                 : step::representative_micro_batches(pipeline, q.grad_accum,
                                                                      kSimulatedMicroBatches);
}

Result<void> set_parts(Scenario& s) {
  const FitQuestion& q = s.question;
  if (q.stages == 1) {
    if (q.stage_layers.empty()) return {};
    return contradiction("stage-layers", "nothing is cut into stages",
                         "beside --method pp:N; a search shares layers out itself");
  }
  HEADROOM_ASSIGN(const std::vector<int64_t> layers, layers_by_part(s));
  if (q.method != Method::full && std::ranges::find(layers, 0) != layers.end()) {
    return contradiction(
        "method",
        "a part of " + words(static_cast<int64_t>(layers.size())) + " has no layers to adapt",
        "fewer stages, or fewer chunks of each");
  }
  s.build.parts = step::parts_of_rank(step::model_parts(layers), q.stages, q.stage,
                                      step::is_mirrored(q.schedule));
  return {};
}

Result<void> check_pipeline(const Scenario& s) {
  const FitQuestion& q = s.question;
  if (s.task != model::Task::causal_lm) {
    return unsupported("method", "a pipeline of anything but a causal language model");
  }
  HEADROOM_TRY(check_division_of_stages(q));
  if (q.method == Method::lora_8bit || q.method == Method::gptq_lora) {
    return unsupported("method", "weights of 8 bits, or GPTQ's, in a pipeline");
  }
  if (!q.freeze.empty()) return unsupported("freeze", "frozen parts of a pipeline's stages");
  if (q.kernels != Kernels::none) return unsupported("kernels", "fused kernels in a pipeline");
  if (q.offload != Offload::none) return unsupported("offload", "offloading within a pipeline");
  if (q.use_cache) return unsupported("use-cache", "a cache of keys and values in a pipeline");
  if (q.mixed_precision != MixedPrecision::none && q.division == Division::none) {
    return contradiction("mixed-precision", "in a pipeline it is fully_shard's, not autocast",
                         "--method fsdp2:N,pp:M, or leave it out");
  }
  if (q.optimizer_in_backward) {
    return contradiction("optimizer-in-backward", "gradients are whole behind the last micro-batch",
                         "leave it out");
  }
  if (s.loss == Loss::fused_linear || s.loss == Loss::chunked || s.loss == Loss::chunked_head) {
    return contradiction("loss", "a schedule hands logits to the loss function",
                         "--loss hf or --loss fused");
  }
  if (step::splits_backward(q.schedule) && q.checkpointing.kind != CheckpointingKind::none) {
    return unsupported("checkpointing", "what is run again in both parts of a split backward pass");
  }
  if (q.schedule == step::PipelineSchedule::gpipe && q.stage_chunks > 1) {
    return contradiction("pipeline-schedule", "GPipe has one part of the model on each stage",
                         "leave vpp out");
  }
  if (!q.placements.empty()) return unsupported("placements", "a plan of one stage of several");
  return check_micro_batches(q);
}

}  // namespace headroom::fit
