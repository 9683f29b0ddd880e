// FitQuestion: what `headroom fit` is asked, with every setting by its flag's name.
//
// One door for all askers: the command line, the rows of --against and the search for remedies all
// set fields through set(), which takes the words of a flag and refuses what it does not know with
// the words it would take. Settings that are left alone hold the frameworks' own defaults. Plain
// values; free to copy, and to use from any thread that owns its copy.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engines/stage3_counts.h"
#include "fit/answer.h"
#include "fit/expert_imbalance.h"
#include "fit/megatron/setting.h"
#include "step/compiled/compiled_parts.h"
#include "step/parallel_options.h"
#include "step/pipeline.h"

namespace headroom::fit {

enum class Dtype : uint8_t { bf16, fp16, fp32 };
enum class MixedPrecision : uint8_t { none, bf16, fp16 };
enum class Method : uint8_t { full, lora, dora, ia3, qlora, lora_8bit, gptq_lora };
enum class Optimizer : uint8_t {
  adamw,
  adam,
  sgd,
  sgd_momentum,
  adafactor,     // torch.optim's
  hf_adafactor,  // transformers', which its Trainer means by the name
  lion,          // bitsandbytes', as are those below
  lion_8bit,
  paged_lion,
  paged_lion_8bit,
  adamw_8bit,
  paged_adamw,
  paged_adamw_8bit,
  ademamix,
  ademamix_8bit,
  paged_ademamix,
  paged_ademamix_8bit,
  rmsprop_bnb,
  rmsprop_bnb_8bit,
};
// How a step is divided among devices.
enum class Division : uint8_t {
  none,
  fsdp1,   // FullyShardedDataParallel, FULL_SHARD
  fsdp2,   // fully_shard
  ddp,     // DistributedDataParallel
  zero1,   // DeepSpeed's optimizer states in parts
  zero2,   // and its gradients
  zero3,   // and its parameters
  gemini,  // Colossal-AI's chunks
};
// How torch.optim walks the parameters. `automatic` is torch's own choice (foreach on CUDA).
enum class OptimizerLoop : uint8_t { automatic, foreach, fused, loop };
enum class CheckpointingKind : uint8_t { none, full, every_n, selective };
enum class Attention : uint8_t {
  automatic,  // what the model's class would choose in these versions
  eager,
  sdpa,
  sdpa_math,
  sdpa_efficient,
  sdpa_flash,
  sdpa_cudnn,
  flash2,
};
enum class Loss : uint8_t {
  automatic,     // the one that the kernels bring, else the model's own
  hf,            // the model's own loss in the given version of transformers
  fused_linear,  // the logits never exist as a whole (Liger and the like)
  fused,         // a fused cross entropy over whole logits
  chunked,       // cross entropy chunk by chunk, as torchtune's
  chunked_head,  // the head, too, each chunk with its backward pass, as torchtitan's
};
[[nodiscard]] std::string_view word_of(Loss loss);
// What is in the host's memory. Parameters: FSDP's shares of them, with their gradients and states;
// or those of ZeRO's third stage, alone.
enum class Offload : uint8_t { none, optimizer, parameters, optimizer_and_parameters };
// What of a quantized model is cast to float32 before training.
enum class KbitPreparation : uint8_t {
  none,
  norms,   // peft casts all, TRL's SFTTrainer takes embeddings and head back
  others,  // axolotl takes norms back, too: biases are left, and experts that nothing quantizes
  all,     // peft's prepare_model_for_kbit_training
};
// Whose fused kernels replace a model's norms, rotary embeddings, gated MLPs and cross entropy.
enum class Kernels : uint8_t {
  none,
  liger,  // Liger-Kernel
  fast,   // fms-acceleration's fast kernels, which come from unsloth
};

// Linear modules of layers whose products are in float8.
enum class Float8 : uint8_t {
  none,
  tensorwise,  // torchao's, with a scale of each tensor at the time
  rowwise,     // torchao's, with a scale of each row: nothing is gathered in float8
};

// Of what a selectively checkpointed layer makes, what is kept.
enum class SelectiveKeeps : uint8_t { products_and_attention, products, attention };

using engines::kOfHiddenSize;

struct Checkpointing {
  CheckpointingKind kind = CheckpointingKind::none;
  int64_t every = 1;  // every n-th layer, for every_n
  SelectiveKeeps keeps = SelectiveKeeps::products_and_attention;
  int64_t but_every = 0;  // selective: every n-th product is computed again all the same; 0: none
  bool operator==(const Checkpointing&) const = default;
};

struct FitQuestion {
  std::string model;   // a built-in name, a config.json, a cache entry, or file.py:function
  std::string device;  // a name, or "auto" for what is in this machine; empty: the asker chooses
  int64_t batch = 1;
  int64_t seq = 1024;
  Dtype dtype = Dtype::bf16;
  MixedPrecision mixed_precision = MixedPrecision::none;
  bool any_precision = false;  // a search looks at several (search/precision.h)
  Method method = Method::full;
  Division division = Division::none;
  int64_t ranks = 1;         // that a division is among
  int64_t replicas = 1;      // of all of them: FSDP's hybrid sharding
  int64_t tensor_ranks = 1;  // that each product is divided among, within one of the others
  // Between divided products each of those has its part of the sequence, as torchtitan has it.
  bool sequence_parallel = false;
  int64_t context_ranks = 1;  // that share each sequence, as context_parallel has it
  int64_t expert_ranks = 1;   // that share a mixture's experts out, of those of a division
  int64_t stages = 1;         // of a pipeline, as torch.distributed.pipelining runs it
  int64_t stage_chunks = 1;   // of the model on each of them, where said (parts_of_stage)
  // Layers of each part of the model, in its order; empty: as torchtitan shares them out.
  std::vector<int64_t> stage_layers;
  step::PipelineSchedule schedule = step::PipelineSchedule::one_forward_one_backward;
  int64_t stage = 0;  // that is looked at: the answer is about all, and shows the fullest
  int64_t nodes = 1;  // that the devices are spread over evenly
  std::string link;   // between them, of one device: "ib-400g"; empty: not said
  // DistributedDataParallel's arguments.
  int64_t bucket_cap_mb = 25;
  bool gradient_as_bucket_view = false;
  bool find_unused_parameters = false;
  std::optional<Dtype> reduce_dtype;  // fully_shard's MixedPrecisionPolicy; none: the gradients'
  // Whether fully_shard is called on the embedding, and on the final norm with the head, too; none:
  // as accelerate has it, where it runs the loop.
  std::optional<bool> shard_ends;
  step::Reshards reshards = step::Reshards::layers;  // behind forward, of fully_shard's units
  // Whether FSDP reduces gradients behind every micro-batch; none: as the loop has it.
  std::optional<bool> sync_each_batch;
  // DeepSpeed's configuration.
  int64_t reduce_bucket_size = 500'000'000;  // elements, or kOfHiddenSize
  std::optional<bool> overlap_comm;          // none: what the stage has
  engines::Stage3Elements stage3 = engines::kStage3Standard;
  int64_t lora_rank = 16;
  std::vector<std::string> lora_targets;  // empty: what peft takes for this architecture
  double lora_dropout = 0;
  Dtype lora_dtype = Dtype::fp32;
  std::vector<std::string> ia3_feedforward;  // empty: what peft takes for this architecture
  int64_t gptq_group = 128;                  // input features that share a scale; 0: all of them
  Optimizer optimizer = Optimizer::adamw;
  OptimizerLoop optimizer_loop = OptimizerLoop::automatic;
  bool optimizer_in_backward = false;
  std::vector<std::string> freeze;  // parts of parameters' names
  Offload offload = Offload::none;
  Kernels kernels = Kernels::none;
  KbitPreparation kbit_preparation = KbitPreparation::all;
  Checkpointing checkpointing;
  std::optional<bool> reentrant;  // checkpoints; none: as transformers has it by its version
  step::CompiledParts compile;
  Float8 float8 = Float8::none;
  Attention attention = Attention::automatic;
  Loss loss = Loss::automatic;
  int64_t loss_chunks = 8;   // of chunked_head
  bool accelerate = false;   // accelerate runs the loop: outputs in float32 under mixed precision
  bool use_cache = false;    // the forward function makes a key-value cache and returns it
  bool keep_outputs = true;  // the loop keeps the model's outputs until the next step
  int64_t grad_accum = 1;
  std::optional<int64_t> global_batch;  // sequences a step, on all devices; decides grad_accum
  std::optional<double> clip;           // the norm; none: no clipping
  bool classifies = false;              // whole sequences, instead of the family's own task
  std::optional<int64_t> labels;        // of that; none: the config's
  std::optional<int64_t> decoder_seq;   // of a decoder beside an encoder; none: as long as seq
  std::optional<int64_t> vocab;         // in place of the config's
  std::string torch = "2.13";
  std::string transformers = "5.23";
  std::string allocator;  // PYTORCH_CUDA_ALLOC_CONF; empty: the defaults
  std::string assume;     // a family, for an architecture that is not known
  ExpertImbalance expert_imbalance = kExpertImbalance;
  std::optional<MegatronSetting> megatron;   // the model and the engine are Megatron-LM's
  std::string calibration;                   // a file of headroom.calibration/1
  std::string events;                        // where to write the memory events; empty: nowhere
  std::string placements;                    // where to write a plan of the step; empty: nowhere
  bool search = true;                        // remedies, largest batch and longest sequence too
  std::optional<size_t> remedy_batches;      // of how many remedies, best first; none: of all
  bool timeline = false;                     // fill FitAnswer::timeline
  std::set<std::string, std::less<>> given;  // the names that set() was called with

  // Sets one field from a flag's name (without dashes) and the words behind it; for a switch the
  // words are "true" or "false". The error says which words would do.
  Result<void> set(std::string_view name, std::string_view words);
  bool operator==(const FitQuestion&) const = default;
};

// One flag of the question, as data: for the command line, its help and the docs.
struct QuestionFlag {
  std::string_view name;   // "optimizer": --optimizer, and the setting's name in the answer
  std::string_view value;  // "KIND" in the help; empty for a switch
  std::string_view help;
};
[[nodiscard]] std::span<const QuestionFlag> question_flags();

// A count of elements in DeepSpeed's configuration, in words: a number, or "auto".
[[nodiscard]] std::string elements_words(int64_t elements);

// "lora": what is trained, as the words of --method begin.
[[nodiscard]] std::string method_word(const FitQuestion& question);
// ",fsdp2:8,replicate:2", ",fsdp2:2,tp:4": how a step is divided, as the words of --method end;
// nothing where it is not.
[[nodiscard]] std::string division_words(const FitQuestion& question);

// Whether the step is on more than one device.
[[nodiscard]] inline bool is_divided(const FitQuestion& question) {
  return question.division != Division::none || question.tensor_ranks > 1 || question.stages > 1;
}
// Whether by DeepSpeed's ZeRO.
[[nodiscard]] inline bool is_zero(Division division) {
  return division == Division::zero1 || division == Division::zero2 || division == Division::zero3;
}
// Which the third stage does where nothing is said.
[[nodiscard]] inline bool overlaps_comm(const FitQuestion& question) {
  return question.overlap_comm.value_or(question.division == Division::zero3);
}
[[nodiscard]] inline bool is_fsdp(Division division) {
  return division == Division::fsdp1 || division == Division::fsdp2;
}
// accelerate's accumulate() and HF's Trainer reduce behind the last micro-batch alone; who shares
// experts out is taken to use the latter.
[[nodiscard]] inline bool syncs_each_batch(const FitQuestion& question) {
  return question.sync_each_batch.value_or(!question.accelerate && question.expert_ranks == 1);
}
// Of the model on each stage: mirrored schedules have two, said or not.
[[nodiscard]] inline int64_t parts_of_stage(const FitQuestion& question) {
  return step::is_mirrored(question.schedule) ? 2 : question.stage_chunks;
}
// Of a step. Where nobody says how many, a pipeline has one a stage; of mirrored ones two, below
// which DualPipeV does not run and stages of ZB-V wait for each other.
[[nodiscard]] inline int64_t micro_batches_of(const FitQuestion& question) {
  const bool is_said =
      question.given.contains("grad-accum") || question.global_batch || question.grad_accum != 1;
  if (is_said || question.stages == 1) return question.grad_accum;
  return question.stages * (step::is_mirrored(question.schedule) ? 2 : 1);
}
// accelerate/utils/fsdp_utils.py, fsdp2_prepare_model; transformers/distributed/fsdp.py.
[[nodiscard]] inline bool shards_ends(const FitQuestion& question) {
  return question.division == Division::fsdp2 && question.stages == 1 &&
         question.shard_ends.value_or(question.accelerate || question.expert_ranks > 1);
}
// Whether what adapters stand beside is quantized.
[[nodiscard]] inline bool has_quantized_base(const FitQuestion& question) {
  return question.method == Method::qlora || question.method == Method::lora_8bit ||
         question.method == Method::gptq_lora;
}
// Whether by bitsandbytes, in 4 bits or 8.
[[nodiscard]] inline bool has_bitsandbytes_base(const FitQuestion& question) {
  return question.method == Method::qlora || question.method == Method::lora_8bit;
}
[[nodiscard]] inline bool offloads_optimizer(const FitQuestion& question) {
  return question.offload == Offload::optimizer ||
         question.offload == Offload::optimizer_and_parameters;
}
[[nodiscard]] inline bool offloads_parameters(const FitQuestion& question) {
  return question.offload >= Offload::parameters;
}
// Whether the optimizer's states, and so its steps, are the host's: FSDP's shares take them along.
[[nodiscard]] inline bool steps_on_host(const FitQuestion& question) {
  return offloads_optimizer(question) ||
         (is_fsdp(question.division) && offloads_parameters(question));
}
// That take part in a step, and that each have sequences of their own.
[[nodiscard]] inline int64_t data_ranks_of(const FitQuestion& question) {
  return question.ranks * question.replicas;
}
// Of a sequence, what one rank has: an equal part from either end's chunks, where several share it.
[[nodiscard]] inline int64_t part_of_sequence(const FitQuestion& question) {
  if (question.context_ranks == 1) return question.seq;
  const int64_t chunks = 2 * question.context_ranks;
  return 2 * ((question.seq + chunks - 1) / chunks);
}
[[nodiscard]] inline int64_t devices_of(const FitQuestion& question) {
  return data_ranks_of(question) * question.tensor_ranks * question.context_ranks * question.stages;
}

// What a flag stands at where nobody sets it, in words; empty where that is decided elsewhere.
[[nodiscard]] std::string default_of(std::string_view flag);

// Every setting of the question in the words that set() takes, given or default; what only holds
// for LoRA is left out of other methods. fit::answer() corrects origins and adds what it derives.
[[nodiscard]] std::vector<Setting> settings_of(const FitQuestion& question);

// The value of one of them; empty where there is none of that name.
[[nodiscard]] std::string setting_of(const std::vector<Setting>& settings, std::string_view name);

// A question of `fit --against`.
struct AgainstQuestion {
  std::string file;
  std::string calibration;       // correct predictions by this file; empty: do not
  std::string save_calibration;  // write what was learned here; empty: nowhere
};

}  // namespace headroom::fit
