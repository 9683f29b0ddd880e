// TrainingSetup: how a training is divided and run, as far as launchers and engines say it in
// files: accelerate's YAML, DeepSpeed's JSON, torchtitan's command, the arguments of transformers'
// Trainer, LLaMA-Factory's and axolotl's.
//
// Plain values. What is nothing the file does not say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engines/stage3_counts.h"

namespace headroom::engines {

enum class Sharing : uint8_t { none, ddp, fsdp1, fsdp2, zero1, zero2, zero3 };

[[nodiscard]] inline bool is_zero(std::optional<Sharing> sharing) {
  return sharing == Sharing::zero1 || sharing == Sharing::zero2 || sharing == Sharing::zero3;
}

// Of the arithmetic: of autocast where weights are float32, or of the weights themselves.
enum class Half : uint8_t { none, bf16, fp16 };

// What of the model is trained.
enum class Tuning : uint8_t { full, lora, dora, qlora, lora_8bit };

// What of a model beside weights in 4 bits or 8 is cast to float32.
enum class Prepared : uint8_t { none, norms, others };

// The loss, where it is not the model's own.
enum class SetupLoss : uint8_t { own, fused_linear, fused };

// In which order a pipeline's stages run their micro-batches.
enum class StageSchedule : uint8_t {
  one_forward_one_backward,
  gpipe,
  zero_bubble,
  zero_bubble_v,
  dual_pipe_v
};

inline constexpr int64_t kMostDevices = 65'536;

struct TrainingSetup {
  std::optional<Sharing> sharing;
  int64_t ranks = 1;          // that a state is divided among
  int64_t replicas = 1;       // of all of them
  int64_t context_ranks = 1;  // that share each sequence
  int64_t tensor_ranks = 1;   // that share each product, and sequences between them
  int64_t stages = 1;         // of a pipeline
  int64_t stage_chunks = 1;   // of the model on each of them
  StageSchedule schedule = StageSchedule::one_forward_one_backward;
  int64_t nodes = 1;
  bool is_counted = false;              // the file says how many ranks there are, be it one
  std::string counted_by;               // what else than a flag may say that
  std::optional<Half> mixed_precision;  // autocast
  std::optional<Half> weights;          // DeepSpeed keeps them in half precision
  bool is_accelerated = false;          // accelerate runs the loop
  bool is_trainer = false;              // and transformers' Trainer is around it
  std::optional<Half> reduced;          // gradients, of fully_shard's; none: in float32
  std::optional<bool> checkpoints;
  bool checkpoints_half_the_products = false;  // and what is no product: torchtitan's selective
  std::optional<int64_t> checkpoints_every;    // so many layers one
  std::optional<bool> is_reentrant;            // PyTorch's first kind; none said: transformers' own
  std::optional<int64_t> batch;
  std::optional<int64_t> grad_accum;
  std::optional<bool> syncs_each_batch;  // of accelerate's loop: gradients of FSDP are reduced so
  std::optional<double> clip;
  std::optional<int64_t> reduce_bucket_size;  // elements, or kOfHiddenSize
  Stage3Said stage3{};                        // of ZeRO's third stage
  std::optional<bool> offloads_optimizer;     // to the CPU, by DeepSpeed
  std::optional<bool> offloads_parameters;    // so too; or FSDP's shares, their states with them
  std::optional<bool> overlap_comm;
  std::optional<int64_t> bucket_cap_mb;       // DistributedDataParallel's
  std::optional<bool> finds_unused;           // its look for unused parameters
  std::optional<std::string> optimizer;       // by transformers' name
  std::string optimizer_key = "optim";        // that the file has it under
  std::optional<std::string> optimizer_loop;  // foreach, fused, loop: where the name does not say
  std::optional<int64_t> loss_chunks;         // torchtitan's
  std::optional<bool> reshards;               // behind forward, of fully_shard's layers
  std::optional<bool> shards_ends;            // fully_shard on embedding and head, too
  std::optional<bool> compiles_layers;        // by torch.compile, each by itself
  std::optional<bool> compiles_loss;
  std::optional<bool> compiles_model;  // as a whole, with its loss
  std::optional<std::string> model;
  std::optional<int64_t> sequence;
  std::optional<std::string> attention;  // by transformers' name
  std::string attention_key = "attn_implementation";
  std::optional<Tuning> tuning;
  std::optional<int64_t> lora_rank;
  std::vector<std::string> lora_targets;  // empty: not said
  std::optional<double> lora_dropout;
  std::optional<Half> adapters;      // their type, where it is not float32
  std::optional<Prepared> prepared;  // none said: as TRL has it
  std::optional<bool> has_liger;
  std::optional<SetupLoss> loss;     // none said: what the kernels bring
  std::string allocator;             // PYTORCH_ALLOC_CONF; empty: not said
  std::string allocator_of_several;  // the same, of a run of several processes
  bool takes_all_gpus = false;       // where nobody counts them
  std::vector<std::string> notes;    // what was taken otherwise than the file says
};

}  // namespace headroom::engines
