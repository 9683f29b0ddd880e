#include "fit/megatron/scenario.h"

#include <algorithm>

namespace headroom::fit {

namespace {

using model::MegatronAttention;

// Transformer Engine prefers cuDNN's kernels from Hopper on, and flash-attn before; on Blackwell
// cuDNN's are not deterministic where they drop out, before Hopper not at all, and flash-attn's not
// before 2.4.1 (get_attention_backend in
// dot_product_attention/utils.py, nvte_get_fused_attn_backend in fused_attn.cpp).
MegatronAttention picked_attention(int compute_capability, const MegatronSetting& setting) {
  constexpr int kHopper = 90;
  constexpr int kBlackwell = 100;
  const bool has_flash = !(setting.stage.model.deterministic && setting.old_flash_attention);
  if (compute_capability < kHopper) {
    return has_flash ? MegatronAttention::flash : MegatronAttention::unfused;
  }
  const bool cannot = compute_capability >= kBlackwell && setting.stage.model.deterministic &&
                      setting.stage.model.attention_dropout > 0;
  return cannot ? MegatronAttention::flash : MegatronAttention::fused;
}

// Where the ranks are that share what: tensor, context and data parallel ones in this order, and
// stages the furthest apart; experts' ranks among those of a stage (RankGenerator in
// megatron/core/parallel_state.py).
step::MegatronOptions placed(const MegatronSetting& setting, int64_t world) {
  const model::MegatronRank& rank = setting.stage.rank;
  step::MegatronOptions data = setting.data;
  data.data_apart = static_cast<int32_t>(rank.tensor);
  data.expert_apart = static_cast<int32_t>(rank.expert * rank.expert_tensor);
  const bool is_at_an_end = rank.is_first() || rank.is_last();
  if (data.shares_embedding && is_at_an_end) {
    const int64_t stage = world / rank.pipeline;
    data.embedding_group = {2, static_cast<int32_t>((rank.pipeline - 1) * stage)};
  }
  return data;
}

// FusedScaleMaskSoftmax.is_kernel_available over `keys`, and apex's get_batch_per_block: 4 warps of
// a row each, of two where a row is short.
bool has_softmax_kernel(const MegatronSetting& setting, Dtype dtype, int64_t keys) {
  constexpr int64_t kLeast = 17;
  constexpr int64_t kMost = 4096;
  constexpr int64_t kShort = 128;
  const int64_t rows =
      setting.stage.micro_batch * setting.stage.model.heads / setting.stage.rank.tensor;
  return dtype != Dtype::fp32 && keys >= kLeast && keys <= kMost && keys % 4 == 0 &&
         rows % (keys <= kShort ? 8 : 4) == 0;
}

Result<void> set_fp8(const device::Device& device, int compute_capability,
                     model::MegatronFp8& fp8) {
  if (!fp8.is_on()) return {};
  if (device.vendor != device::Vendor::nvidia ||
      !op::multiplies_fp8(fp8.recipe, compute_capability)) {
    return Error{
        ErrorCode::usage,
        "FP8 (" + std::string(op::name_of(fp8.recipe)) + ") is not modelled on " + device.name,
        "--device",
        "delayed and tensorwise from Ada and Hopper on, blockwise on Hopper, mxfp8 on "
        "Blackwell"};
  }
  fp8.keeps_twice = op::keeps_fp8_twice(fp8.recipe, compute_capability);
  return {};
}

}  // namespace

int64_t te_workspace_bytes(int compute_capability) {
  constexpr int kHopper = 90;
  return compute_capability >= kHopper ? (int64_t{32} << 20) + 1024 : int64_t{4} << 20;
}

step::Pipeline pipeline_of(const model::MegatronRank& rank) {
  return {rank.pipeline, rank.stage, rank.chunks(), rank.group};
}

Result<void> set_megatron(Scenario& s) {
  MegatronSetting& setting = *s.question.megatron;
  setting.stage.micro_batch = s.question.batch;
  setting.stage.sequence = s.question.seq;
  setting.micro_batches = s.question.grad_accum;
  setting.stage.workspace_bytes = te_workspace_bytes(s.train.environment.compute_capability);
  model::MegatronModel& m = setting.stage.model;
  HEADROOM_TRY(set_fp8(*s.device, s.train.environment.compute_capability, m.fp8));
  m.expert_share = setting.routes_among_ranks() ? s.question.expert_imbalance.expected : 1;
  if (m.local) {
    m.attention = MegatronAttention::unfused;
    m.fused_softmax =
        m.fused_softmax && has_softmax_kernel(setting, s.question.dtype, s.question.seq) &&
        (m.decoder_layers == 0 ||
         has_softmax_kernel(setting, s.question.dtype, setting.stage.decoder_sequence));
    // A router's product is Transformer Engine's all the same (te_general_gemm in moe_utils.py).
    if (m.experts == 0) setting.stage.workspace_bytes = 0;
  } else if (m.attention == MegatronAttention::automatic) {
    m.attention = picked_attention(s.train.environment.compute_capability, setting);
  }
  // Grouped products run on streams of their own, each with its workspace
  // (get_num_cublas_streams).
  constexpr int64_t kGroupedStreams = 4;
  if (m.experts > 0 && m.grouped_experts) setting.stage.workspace_bytes *= 1 + kGroupedStreams;
  step::TrainOptions& train = s.train;
  train.weights = dtype_of(s.question.dtype);
  train.keep_outputs = false;
  train.clip_gradients = true;
  train.pipeline = pipeline_of(setting.stage.rank);
  train.accumulation = step::representative_micro_batches(train.pipeline, setting.micro_batches,
                                                          kSimulatedMicroBatches);
  train.checkpoint_kind = step::CheckpointKind::reentrant;  // CheckpointFunction
  if (s.question.checkpointing.kind == CheckpointingKind::full) {
    train.checkpointing = step::CheckpointPolicy::full;
  } else if (s.question.checkpointing.kind == CheckpointingKind::selective) {
    train.checkpointing = step::CheckpointPolicy::core_attention;
  }
  train.fold_layers = false;
  train.parallel = placed(setting, s.question.ranks);
  // FusedAdam: one kernel over all masters, whose step counts are the host's.
  train.optimizer.kind = step::OptimizerKind::adam;
  train.optimizer.implementation = step::OptimizerImplementation::fused;
  train.optimizer.counts_on_host = true;
  if (setting.blas_workspace_bytes >= 0) {
    train.environment.blas.main_bytes = setting.blas_workspace_bytes;
  }
  return {};
}

}  // namespace headroom::fit
