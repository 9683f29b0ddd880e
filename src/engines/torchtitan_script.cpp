#include "engines/script_launch.h"
#include "engines/torchtitan.h"
#include "engines/torchtitan_names.h"
#include "engines/torchtitan_stages.h"
#include "text/json.h"

namespace headroom::engines {

namespace {

Result<TorchtitanConfig> config_of(const TrainingSetup& setup) {
  std::string known;
  for (const TorchtitanConfig& config : torchtitan_configs()) {
    if (setup.model == config.model) return config;
    known += (known.empty() ? "" : ", ") + std::string(config.model);
  }
  return Error{ErrorCode::usage,
               "torchtitan 0.3.0 has no configuration that is known of " +
                   setup.model.value_or("the model").substr(0, 80),
               "--emit torchtitan", known};
}

std::string_view type_of(Half half) { return half == Half::none ? "float32" : "bfloat16"; }

std::string_view checkpointing_of(const TrainingSetup& setup) {
  if (!setup.checkpoints.value_or(false)) return "none";
  return setup.checkpoints_half_the_products ? "selective" : "full";
}

}  // namespace

Result<std::string> torchtitan_script(const TrainingSetup& setup) {
  HEADROOM_ASSIGN(const TorchtitanConfig config, config_of(setup));
  const int64_t at_once = setup.ranks * setup.replicas;
  const int64_t world = at_once * setup.context_ranks * setup.tensor_ranks * setup.stages;
  // A pipeline's micro-batches are of one step.
  const int64_t micro_batch = setup.batch.value_or(config.batch);
  const int64_t accumulated = setup.grad_accum.value_or(1);
  const int64_t batch = setup.stages > 1 ? micro_batch * accumulated : micro_batch;
  const int64_t global = micro_batch * accumulated * at_once;
  std::string text =
      "#!/bin/bash\n# A command of torchtitan 0.3.0, written by headroom fit --emit.\nset -eu\n";
  text += allocator_line(setup.allocator) + machine_names(setup.nodes) +
          torchrun_line(setup.nodes, world / setup.nodes) + " \\\n  -m torchtitan.train";
  const auto add = [&](std::string_view name, const std::string& value) {
    text += " \\\n  --" + std::string(name) + (value.empty() ? "" : " ") + value;
  };
  add("module", std::string(config.module) + " --config " + std::string(config.name));
  add("parallelism.data_parallel_replicate_degree", std::to_string(setup.replicas));
  add("parallelism.data_parallel_shard_degree", std::to_string(setup.ranks));
  add("parallelism.tensor_parallel_degree", std::to_string(setup.tensor_ranks));
  if (setup.context_ranks > 1) {
    add("parallelism.context_parallel_degree", std::to_string(setup.context_ranks));
  }
  if (setup.stages > 1) {
    add("parallelism.pipeline_parallel_degree", std::to_string(setup.stages));
    HEADROOM_ASSIGN(const TorchtitanStages stages, torchtitan_stages(setup, config));
    add("parallelism.pipeline_parallel_schedule", std::string(stages.schedule));
    if (stages.layers_per_stage) {
      add("parallelism.pipeline_parallel_layers_per_stage",
          std::to_string(*stages.layers_per_stage));
    }
    add("parallelism.pipeline_parallel_microbatch_size", std::to_string(micro_batch));
  }
  if (!setup.reshards.value_or(true)) add("parallelism.fsdp_reshard_after_forward", "never");
  add("training.local_batch_size", std::to_string(batch));
  add("training.global_batch_size", std::to_string(global));
  add("training.seq_len", std::to_string(setup.sequence.value_or(config.sequence)));
  const Half computes = setup.mixed_precision.value_or(Half::none);
  const Half keeps = setup.weights.value_or(Half::none);
  add("training.dtype", std::string(type_of(computes == Half::none ? keeps : Half::none)));
  add("training.mixed_precision_param",
      std::string(type_of(computes == Half::none ? keeps : computes)));
  if (setup.clip) add("training.max_norm", text::Json(*setup.clip).dump());
  add("training.disable_cuda_graphs", "");
  if (setup.offloads_parameters.value_or(false)) add("training.enable_cpu_offload", "");
  const std::string loop = setup.optimizer_loop.value_or("fused");
  add("optimizer.implementation", loop == "loop" ? "for-loop" : loop);
  const bool layers = setup.compiles_layers.value_or(false);
  const bool loss = setup.compiles_loss.value_or(false);
  if (layers || loss) add("compile.enable", "");
  if (layers != loss) add("compile.components", layers ? "model" : "loss");
  add("loss.num_chunks", std::to_string(setup.loss_chunks.value_or(8)));
  // A kind stands behind the arguments; the script's own come before it.
  return text + " \\\n  \"$@\" activation-checkpoint:" + std::string(checkpointing_of(setup)) +
         "\n";
}

std::string torchtitan_line(const TrainingSetup& setup, const std::string& file) {
  return script_line(setup.nodes, file);
}

}  // namespace headroom::engines
