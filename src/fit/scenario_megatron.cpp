#include "fit/scenario_megatron.h"

#include <algorithm>

namespace headroom::fit {

namespace {

using model::MegatronAttention;

// Transformer Engine prefers cuDNN's kernels from Hopper on, and flash-attn before; on Blackwell
// cuDNN's are not deterministic where they drop out (get_attention_backend in
// dot_product_attention/utils.py, nvte_get_fused_attn_backend in fused_attn.cpp).
MegatronAttention picked_attention(int compute_capability, bool deterministic, double dropout) {
  constexpr int kHopper = 90;
  constexpr int kBlackwell = 100;
  if (compute_capability < kHopper) return MegatronAttention::flash;
  const bool cannot = compute_capability >= kBlackwell && deterministic && dropout > 0;
  return cannot ? MegatronAttention::flash : MegatronAttention::fused;
}

}  // namespace

int64_t te_workspace_bytes(int compute_capability) {
  constexpr int kHopper = 90;
  return compute_capability >= kHopper ? (int64_t{32} << 20) + 1024 : int64_t{4} << 20;
}

void set_megatron(Scenario& s) {
  MegatronSetting& setting = *s.question.megatron;
  setting.stage.micro_batch = s.question.batch;
  setting.stage.sequence = s.question.seq;
  setting.micro_batches = s.question.grad_accum;
  setting.stage.workspace_bytes = te_workspace_bytes(s.train.environment.compute_capability);
  model::MegatronModel& m = setting.stage.model;
  if (m.attention == MegatronAttention::automatic) {
    m.attention = picked_attention(s.train.environment.compute_capability, setting.deterministic,
                                   m.attention_dropout);
  }
  step::TrainOptions& train = s.train;
  train.weights = dtype_of(s.question.dtype);
  train.keep_outputs = false;
  train.clip_gradients = true;
  train.accumulation = setting.micro_batches;
  train.pipeline_warmup = setting.stage.rank.pipeline - 1 - setting.stage.rank.stage;
  if (s.question.checkpointing.kind == CheckpointingKind::full) {
    train.checkpointing = step::CheckpointPolicy::full;
    train.checkpoint_kind = step::CheckpointKind::reentrant;  // CheckpointFunction
  }
  train.fold_layers = false;
  train.parallel = setting.data;
  // FusedAdam: one kernel over all masters, whose step counts are the host's.
  train.optimizer.kind = step::OptimizerKind::adam;
  train.optimizer.implementation = step::OptimizerImplementation::fused;
  train.optimizer.counts_on_host = true;
  if (setting.blas_workspace_bytes >= 0) {
    train.environment.blas.main_bytes = setting.blas_workspace_bytes;
  }
}

}  // namespace headroom::fit
