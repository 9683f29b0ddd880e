// A rank's part of a GPT as Megatron-LM builds it: one stage of a pipeline, a share of every
// matrix, a part of the sequence. The layers are Transformer Engine's, or Megatron-LM's own.
//
// The graph is of one micro-batch on that rank. A stage that is not the first has its hidden states
// as an input that wants a gradient; one that is not the last ends in hidden states, and has no
// loss. Blocks that the engine makes once and keeps (Transformer Engine's workspace, the buffer of
// gathered sequences) are buffers of the graph. Where a stage holds several chunks of the model,
// each is a chunk of the graph.
//
// Source: megatron/core/models/gpt/gpt_model.py, transformer/{transformer_layer,attention,mlp}.py,
// models/common/embeddings/language_model_embedding.py, at d98e8a64 (August 2026).
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "base/result.h"
#include "model/graph.h"
#include "operator/fp8.h"

namespace headroom::model {

enum class MegatronAttention : uint8_t {
  automatic,  // what Transformer Engine picks; decided before a graph is built
  unfused,    // Transformer Engine's: scores and their softmax are kept
  flash,      // the flash-attn package
  fused,      // cuDNN's
};

// Of a mixture of experts the graph is of routing that gives this rank's experts `expert_share` of
// an even part of the tokens, as far as their capacity goes. What a real router does varies from
// step to step, but for experts that are filled up.

// Multi-latent attention, where key_rank is not 0: the widths of the narrow vectors that queries,
// and keys with values, come from, and of a head's parts.
struct MegatronLatent {
  int64_t query_rank = 0;  // 0: queries come from the hidden states
  int64_t key_rank = 0;
  int64_t key_size = 128;
  int64_t rotary_size = 64;  // of queries and keys, beside key_size
  int64_t value_size = 128;
  bool norms = false;         // of the narrow vectors (--qk-layernorm)
  bool fused_rotary = false;  // by kernels of Megatron-LM's own
  bool operator==(const MegatronLatent&) const = default;
};

// How Transformer Engine's products are quantized; none of them where there is no recipe.
struct MegatronFp8 {
  op::Fp8Recipe recipe = op::Fp8Recipe::none;
  bool keeps_twice = false;  // weights, by rows and by columns (op::keeps_fp8_twice)
  int64_t history = 1;       // of largest values, where scales are delayed
  bool router_pads = false;  // experts' tokens to whole tiles; else experts do
  bool operator==(const MegatronFp8&) const = default;

  [[nodiscard]] bool is_on() const { return recipe != op::Fp8Recipe::none; }
};

// Sizes of the whole model.
struct MegatronModel {
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;
  int64_t inner = 0;              // the MLP's width
  int64_t padded_vocabulary = 0;  // a multiple of the ranks that divide it
  int64_t positions = 0;          // of learned embeddings; 0: rotary ones, or none
  bool rotary = false;
  bool plain_rotary = false;        // turned by plain operators (--no-rope-fusion)
  bool interleaved_rotary = false;  // of those: by pairs that lie side by side
  int64_t rotary_size = 0;          // columns of a head that are turned; 0: all
  bool rms_norm = false;
  bool gated = false;  // SwiGLU instead of GELU
  bool linear_bias = true;
  bool qkv_bias = true;
  bool tied = true;
  bool bert = false;        // tokens see all others but padding; BERT's ends
  bool head_norms = false;  // of each head's query and key (--qk-layernorm without `latent`)
  MegatronLatent latent;
  int64_t decoder_layers = 0;  // behind an encoder of `layers` layers (T5); 0: there is no encoder
  // A mixture of experts in the place of every MLP; none where there are no experts.
  int64_t experts = 0;
  int64_t experts_per_token = 1;
  int64_t expert_inner = 0;      // one expert's width
  int64_t shared_inner = 0;      // width of the expert that every token goes to; 0: none
  bool shared_gate = false;      // which a gate weighs (--moe-shared-expert-gate)
  bool grouped_experts = false;  // their products run at once (--moe-grouped-gemm)
  double expert_share = 1;       // of what even routing would give this rank's experts
  // Of an even part of a rank's tokens, that an expert takes of them at most; 0: of all. Where it
  // is filled up, exactly that.
  double expert_capacity = 0;
  bool fills_capacity = false;
  bool deterministic = false;   // --deterministic-mode
  bool local = false;           // Megatron-LM's own modules (--transformer-impl local), their
  bool fused_softmax = true;    //   softmax with a kernel of its own,
  bool wide_softmax = false;    //   else in float32 (--attention-softmax-in-fp32),
  bool scaled_softmax = false;  //   scaled by layers (--apply-query-key-layer-scaling)
  MegatronFp8 fp8;
  bool compiled_loss = false;      // --cross-entropy-loss-fusion, native
  bool plain_activation = false;   // of an MLP (--no-bias-gelu-fusion, --no-bias-swiglu-fusion)
  bool plain_dropout_add = false;  // behind a branch (--no-bias-dropout-fusion)
  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;
  MegatronAttention attention = MegatronAttention::automatic;
  bool operator==(const MegatronModel&) const = default;

  // Columns of a head, or of its part that positions turn.
  [[nodiscard]] int64_t turned_columns() const { return rotary_size > 0 ? rotary_size : head_size; }
};

// The rank that is looked at, and how the whole is divided.
struct MegatronRank {
  int64_t tensor = 1;         // ranks that share a layer's matrices
  int64_t pipeline = 1;       // stages
  int64_t context = 1;        // ranks that share a sequence
  int64_t expert = 1;         // ranks that share the experts out
  int64_t expert_tensor = 1;  // ranks that share an expert's matrices
  int64_t stage = 0;
  int64_t group = 0;  // of micro-batches, of a pipeline with several chunks; 0: its own
  std::vector<int64_t> chunk_layers{0};  // on this stage; chunks lie apart in the model
  bool sequence_parallel = false;
  bool fused_accumulation = true;  // gradients of weights are added to the buffer by the product
  bool mask_from_loader = true;    // create_attention_mask_in_dataloader
  bool operator==(const MegatronRank&) const = default;

  [[nodiscard]] int64_t chunks() const { return static_cast<int64_t>(chunk_layers.size()); }
  [[nodiscard]] int64_t layers() const {
    return std::accumulate(chunk_layers.begin(), chunk_layers.end(), int64_t{0});
  }
  [[nodiscard]] bool is_first() const { return stage == 0; }
  [[nodiscard]] bool is_last() const { return stage + 1 == pipeline; }
};

struct MegatronStage {
  MegatronModel model;
  MegatronRank rank;
  int64_t micro_batch = 1;
  int64_t sequence = 0;          // tokens of a whole sequence
  int64_t decoder_sequence = 0;  // where there is an encoder, whose `sequence` is
  int64_t workspace_bytes = 0;   // Transformer Engine's
  bool operator==(const MegatronStage&) const = default;
};

// The Error names what does not divide, or what is not modelled.
[[nodiscard]] Result<Graph> build_megatron_stage(const MegatronStage& stage);

}  // namespace headroom::model
