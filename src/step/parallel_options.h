// How a step is divided among devices, as plain values. What each method does: fsdp1.h, fsdp2.h,
// ddp.h, zero12.h, zero3.h, gemini.h, megatron_ddp.h.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <variant>

#include "operator/dtype.h"
#include "step/rank_group.h"

namespace headroom::step {

// fully_shard's reshard_after_forward, by unit: what is gathered again in backward.
enum class Reshards : uint8_t { layers, all_but_last_layer, none };

// Where FSDP puts adapters: into their layers' units, each matrix into a unit of its own, or
// nowhere (ignored_modules), where they are whole on each rank and their gradients averaged one by
// one as hooks on them do.
enum class WrapAdapters : uint8_t { with_layers, apart, ignored };

// Which modules FSDP wraps (sharded_units.h).
struct WrapOptions {
  WrapAdapters adapters = WrapAdapters::with_layers;
  // A checkpointed layer's second run has the unit's hooks run again: transformers up to 4.51 calls
  // the wrapped layer from within the checkpoint. Later ones have the checkpoint within the layer.
  bool inside_checkpoints = false;
  // fully_shard's alone: an untied model's embedding is a unit, and its final norm with the head
  // another, which stays whole from forward to backward (torchtitan since 2025).
  bool ends = false;
  Reshards reshards = Reshards::layers;
};

struct FsdpOptions {
  int version = 2;    // 1: FullyShardedDataParallel; 2: fully_shard
  int64_t ranks = 1;  // that a unit is divided among
  int64_t replicas =
      1;  // of those, whose shares of gradients are reduced once more: hybrid sharding
  // That have different experts of a mixture (a divisor of ranks): a mixture's experts are a unit
  // of their own, divided among the others (transformers' DistributedConfig(ep_size=...)).
  int64_t expert_ranks = 1;
  WrapOptions wrap;
  // Mixed precision: units are gathered and reduced in this type, and trained shards are float32,
  // as accelerate has them. Nothing: all in the parameters' own.
  std::optional<op::DType> compute;
  std::optional<op::DType> reduce;  // of fully_shard, gradients are reduced in; else their own
  // CPUOffload(offload_params=True), of the second version CPUOffloadPolicy(): shares of parameters
  // and of gradients are the host's, which steps there; a share comes to the device to be gathered.
  bool offload = false;
  // Gradients are reduced behind every micro-batch; else whole ones add up on each rank until the
  // last, as under no_sync() and set_requires_gradient_sync(False).
  bool sync_each_batch = true;
  // Where not: what a group has of its replicas' gradients adds up in shares, and only the
  // reduction among replicas waits for the last (set_requires_all_reduce(False)).
  bool defers_replicas = false;
  // A stage of a pipeline: units stay gathered from their first forward on, gradients whole, and
  // both until behind the step's last backward (torch.distributed.pipelining, with
  // reshard_after_forward=False as torchtitan has it).
  bool in_pipeline = false;
  op::DType weights = op::DType::bf16;  // of parameters that say nothing else
};

// torch.nn.parallel.DistributedDataParallel's arguments, with their defaults. What a rank holds
// does not depend on how many there are.
struct DdpOptions {
  int64_t first_bucket_bytes = int64_t{1} << 20;  // dist._DEFAULT_FIRST_BUCKET_BYTES
  int64_t bucket_bytes = int64_t{25} << 20;       // bucket_cap_mb
  bool gradient_as_bucket_view = false;
  bool find_unused_parameters = false;
};

// DeepSpeed's ZeRO, with the defaults of its configuration ("zero_optimization").
struct ZeroOptions {
  int stage = 2;
  int64_t ranks = 1;
  int64_t reduce_bucket_elements = 500'000'000;  // reduce_bucket_size
  bool overlap_comm = false;
  bool decay_groups = true;  // the optimizer's parameter groups, each of which lies in one block
  bool offload_optimizer = false;   // masters, states and the step are the host's
  bool offload_parameters = false;  // stage 3: shares are the host's, and gathered through copies
  // Of stage 3, whose overlap_comm is on by default.
  op::DType weights = op::DType::bf16;         // of parameters that say nothing else
  int64_t sub_group_elements = 1'000'000'000;  // sub_group_size
  int64_t prefetch_elements = 50'000'000;      // stage3_prefetch_bucket_size
  int64_t persistence_elements = 100'000;      // stage3_param_persistence_threshold
  int64_t most_live_elements = 1'000'000'000;  // stage3_max_live_parameters
  int64_t reuse_elements = 1'000'000'000;      // stage3_max_reuse_distance
  // Of the device, for tensors. A group whose block does not fit beside the parameters that go into
  // it is joined in the host's memory.
  int64_t device_bytes = std::numeric_limits<int64_t>::max();
};

// Colossal-AI's Gemini with placement_policy "cuda", and its other defaults.
struct GeminiOptions {
  int64_t ranks = 1;         // that hold the same weights
  int64_t tensor_ranks = 1;  // beside them, by Colossal-AI's 1D
  bool clips = false;        // GeminiPlugin(max_norm=...)
};

// Megatron-LM's DistributedDataParallel and its optimizers.
struct MegatronOptions {
  int64_t data_ranks = 1;    // that hold the same parameters: data times context parallel
  int64_t expert_ranks = 1;  // that hold the same experts
  // Devices from one of them to the next.
  int32_t data_apart = 1;
  int32_t expert_apart = 1;
  RankGroup embedding_group = {};  // first and last stage where they share a tied embedding
  bool distributed_optimizer = false;
  int64_t instances = 1;  // of the distributed optimizer, each over its part of the ranks
  bool overlap_grad_reduce = false;      // gradients are reduced bucket by bucket, beside backward
  bool overlap_param_gather = false;     // parameters are gathered beside the next step's forward
  op::DType gradients = op::DType::f32;  // of the block that they are added up in
  bool shares_embedding = false;         // with another stage
  bool operator==(const MegatronOptions&) const = default;
};

// Nothing: all is on one device.
using ParallelOptions = std::variant<std::monostate, FsdpOptions, DdpOptions, ZeroOptions,
                                     GeminiOptions, MegatronOptions>;

[[nodiscard]] inline bool is_parallel(const ParallelOptions& options) {
  return !std::holds_alternative<std::monostate>(options);
}

}  // namespace headroom::step
