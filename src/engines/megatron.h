// Megatron-LM's arguments, as people have them: a shell script, or the YAML of its own tests
// ("--num-layers: 12" in a map). What a file leaves out has Megatron-LM's defaults.
//
// Nothing is run: names that a script gives to numbers (TP=2, ${TP}, ${TP:-2}) are put in, and a
// value that needs more than that is an Error that names it. So is an argument that changes memory
// in a way that is not modelled, and a script of another program than pretrain_gpt.py or
// pretrain_t5.py. Others are listed: those that are known not to matter, and those that nobody
// looked at.
//
// Source: megatron/training/arguments.py at d98e8a64 (August 2026).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engines/shell_arguments.h"

namespace headroom::engines {

struct MegatronArguments {
  int64_t layers = 0;          // an encoder's, where there is a decoder behind it
  int64_t decoder_layers = 0;  // pretrain_t5.py's; 0: there is no encoder
  int64_t decoder_sequence = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t query_groups = 0;  // as many as heads, where nothing is said
  int64_t kv_channels = 0;
  int64_t ffn = 0;
  int64_t sequence = 0;
  int64_t positions = 0;              // that are learned
  int64_t longest = 0;                // --max-position-embeddings of others; 0: not said
  std::optional<int64_t> vocabulary;  // a tokenizer that is named decides it otherwise
  int64_t extra_tokens = 0;           // of them: a T5's sentinels
  int64_t vocabulary_multiple = 128;
  bool swiglu = false;
  bool rms_norm = false;
  bool linear_bias = true;
  bool qkv_bias = false;  // beside the linear ones
  bool tied = true;
  bool rotary = false;
  double rotary_percent = 1;  // of a head's columns, as a share of them
  // Multi-latent attention (--multi-latent-attention); kv_lora_rank 0: there is none.
  int64_t q_lora_rank = 0;  // 0: queries come from the hidden states
  int64_t kv_lora_rank = 0;
  int64_t qk_head_dim = 128;
  int64_t qk_pos_emb_head_dim = 64;
  int64_t v_head_dim = 128;
  bool qk_layernorm = false;
  bool fused_rotary = true;
  bool interleaved_rotary = false;  // by pairs that lie side by side
  int64_t experts = 0;              // none: every layer has one MLP
  int64_t experts_per_token = 1;
  int64_t expert_ffn = 0;
  int64_t shared_expert_ffn = 0;  // width of the expert that every token goes to; 0: none
  bool shared_expert_gate = false;
  bool grouped_experts = false;
  bool sends_tokens = false;  // by all-to-all, in place of gathering them
  // Of an even part of a rank's tokens, that an expert takes of them
  // (--moe-expert-capacity-factor); nothing: all that the router sends it. With fills_capacity
  // exactly that, others among them
  // (--moe-pad-expert-input-to-capacity).
  std::optional<double> expert_capacity;
  bool fills_capacity = false;
  int64_t expert_ranks = 1;
  int64_t expert_tensor_ranks = 1;
  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;
  std::string attention_backend = "auto";  // auto, flash, fused, unfused
  bool deterministic = false;
  bool local = false;           // --transformer-impl local, and of its softmax:
  bool fused_softmax = true;    //   no --no-masked-softmax-fusion
  bool scaled_softmax = false;  //   --apply-query-key-layer-scaling
  bool softmax_in_float32 = false;
  bool fused_activation = true;        // of the MLP, with the bias before it
  bool fused_dropout_add = true;       // of a branch's end: its bias, dropout and the residual
  bool fused_loss = false;             // --cross-entropy-loss-fusion, native
  std::string fp8_format;              // e4m3, hybrid; empty: products are in `type`
  std::string fp8_recipe = "delayed";  // tensorwise, blockwise, mxfp8
  int64_t fp8_history = 1;             // --fp8-amax-history-len
  bool fp8_router_pads = false;        // --moe-router-padding-for-quantization
  std::string type = "fp32";           // bf16, fp16, fp32
  int64_t micro_batch = 1;
  std::optional<int64_t> global_batch;
  int64_t tensor_ranks = 1;
  int64_t stages = 1;
  std::optional<int64_t> chunk_layers;  // of each chunk of a stage, or
  std::optional<int64_t> chunks;        // how many there are
  std::optional<int64_t> first_layers;  // of the first stage, where it differs
  std::optional<int64_t> last_layers;
  bool embedding_is_layer = false;  // where layers are divided among stages
  bool loss_is_layer = false;
  std::vector<int64_t> layout;  // layers by chunk, in the model's order; empty where none is given
  int64_t context_ranks = 1;
  bool sequence_parallel = false;
  bool distributed_optimizer = false;
  int64_t optimizer_instances = 1;
  bool overlap_grad_reduce = false;
  bool overlap_param_gather = false;
  bool gradients_in_half = false;     // --grad-reduce-in-bf16
  bool gradients_in_float32 = false;  // --accumulate-allreduce-grads-in-fp32
  bool fused_accumulation = true;
  bool recomputes_layers = false;
  bool recomputes_attention = false;  // selective: the core of it alone
  bool mask_from_loader = true;
  std::optional<int64_t> nodes;           // torchrun's
  std::optional<int64_t> ranks_per_node;  // torchrun's
  std::string program;                    // the path of what is started; empty: not said
  std::string allocator;                  // PYTORCH_CUDA_ALLOC_CONF; empty: not said
  std::vector<OtherArgument> others;
  std::vector<std::string> harmless;        // known, and of no matter here
  std::vector<std::string> unknown;         // may change memory, for all that is known
  std::vector<std::string> contradictions;  // said twice, differently; the last one counts
  bool operator==(const MegatronArguments&) const = default;
};

// Whether a file is such a script: cheap, and never an error.
[[nodiscard]] bool has_megatron_arguments(std::string_view content);

// At most 1 MiB.
Result<MegatronArguments> read_megatron_arguments(std::string_view content,
                                                  const std::string& file);

}  // namespace headroom::engines
