#include "fit/search/pipeline_settings.h"

#include <numeric>

#include "engines/pipeline_layout.h"
#include "fit/scenario/errors.h"
#include "fit/scenario/stage_layers.h"

namespace headroom::fit {

namespace {

// Part c * stages + s of the model is chunk c of stage s.
std::string layout_words(const StageLayers& by_stage) {
  std::vector<int64_t> parts;
  for (size_t chunk = 0; chunk < by_stage.front().size(); ++chunk) {
    for (const std::vector<int64_t>& stage : by_stage) parts.push_back(stage[chunk]);
  }
  return engines::pipeline_layout_words(parts);
}

class MegatronPipeline : public PipelineSettings {
 public:
  explicit MegatronPipeline(const Scenario& scenario) : question_(scenario.question) {}

  [[nodiscard]] Result<StageLayers> layers() const override {
    if (question_.megatron->stage.model.decoder_layers > 0) {
      return unsupported("pipeline-model-parallel-layout", "a layout of encoder and decoder");
    }
    return question_.megatron->layers_by_stage;
  }
  void set_layers(const StageLayers& layers, FitQuestion& question) const override {
    question.megatron->layers_by_stage = layers;
  }
  [[nodiscard]] bool has_chunks() const override {
    return question_.megatron->stage.rank.chunks() > 1;
  }
  void set_one_chunk(FitQuestion& question) const override {
    for (std::vector<int64_t>& chunks : question.megatron->layers_by_stage) {
      chunks = {std::accumulate(chunks.begin(), chunks.end(), int64_t{0})};
    }
  }

  [[nodiscard]] std::string layers_how(const StageLayers& layers) const override {
    return "give Megatron-LM --pipeline-model-parallel-layout '" + layout_words(layers) +
           "' in place of what else divides layers among stages";
  }
  [[nodiscard]] std::string recomputation_how(const std::string& which) const override {
    return "each process reads its own arguments: start those of " + which +
           " with --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 "
           "and the others without (no run of it was at hand)";
  }
  [[nodiscard]] std::string one_chunk_how() const override {
    return "leave --num-layers-per-virtual-pipeline-stage, --num-virtual-stages-per-pipeline-rank "
           "and a layout's further parts out";
  }
  [[nodiscard]] std::string micro_batch_how(const FitQuestion& question) const override {
    const int64_t all = question.batch * question.grad_accum * question_.megatron->batches();
    return "give Megatron-LM --micro-batch-size " + std::to_string(question.batch) +
           " and --global-batch-size " + std::to_string(all);
  }

 private:
  const FitQuestion& question_;
};

class TorchPipeline : public PipelineSettings {
 public:
  explicit TorchPipeline(const Scenario& scenario) : scenario_(scenario) {}

  [[nodiscard]] Result<StageLayers> layers() const override {
    HEADROOM_ASSIGN(const std::vector<int64_t> parts, layers_by_part(scenario_));
    return by_stage(parts, scenario_.question);
  }
  void set_layers(const StageLayers& layers, FitQuestion& question) const override {
    question.stage_layers = by_part(layers, question);
  }
  // Mirrored schedules have two parts a stage, and no choice.
  [[nodiscard]] bool has_chunks() const override {
    const FitQuestion& q = scenario_.question;
    return q.stage_chunks > 1 && !step::is_mirrored(q.schedule);
  }
  void set_one_chunk(FitQuestion& question) const override {
    question.stage_chunks = 1;
    question.stage_layers.clear();
  }

  [[nodiscard]] std::string layers_how(const StageLayers& layers) const override {
    FitQuestion moved = scenario_.question;
    set_layers(layers, moved);
    return "ask again with --stage-layers " + setting_of(settings_of(moved), "stage-layers") +
           "; cut the model so: in torchtitan, parallelism.module_fqns_per_model_part names each "
           "part's modules";
  }
  [[nodiscard]] std::string recomputation_how(const std::string& which) const override {
    return "each process makes its own stage: checkpoint the layers of " + which +
           " alone (gradient_checkpointing_enable() on the module, before PipelineStage has it); "
           "torchtitan's activation checkpointing is of all stages";
  }
  [[nodiscard]] std::string one_chunk_how() const override {
    return "ask again without vpp; Schedule1F1B in place of ScheduleInterleaved1F1B";
  }
  [[nodiscard]] std::string micro_batch_how(const FitQuestion& question) const override {
    return "ask again with --batch " + std::to_string(question.batch) + " --grad-accum " +
           std::to_string(question.grad_accum) + ", the schedule's n_microbatches";
  }

 private:
  const Scenario& scenario_;
};

}  // namespace

std::unique_ptr<PipelineSettings> pipeline_settings(const Scenario& scenario) {
  if (scenario.question.megatron) return std::make_unique<MegatronPipeline>(scenario);
  return std::make_unique<TorchPipeline>(scenario);
}

}  // namespace headroom::fit
