// A layer of Megatron-LM's on one rank, as Transformer Engine runs it: attention, in a decoder
// behind an encoder cross attention, and an MLP or a mixture of experts. Internal to model.
//
// Source: megatron/core/transformer/{transformer_layer,attention,mlp}.py, models/gpt/
// gpt_layer_specs.py, models/T5/t5_spec.py, at d98e8a64 (August 2026).
#pragma once

#include <optional>
#include <string>

#include "model/megatron_mla.h"
#include "model/megatron_moe.h"
#include "model/megatron_parts.h"

namespace headroom::model {

// The MLP of every token, its norm fused with its first product.
class MegatronMlp {
 public:
  MegatronMlp(GraphBuilder& g, const MegatronStage& stage, const std::string& path);
  Var operator()(GraphBuilder& g, const MegatronStage& stage, const Var& input,
                 const Var& gathered) const;
  [[nodiscard]] const Var& bias() const { return fc2_bias_; }

 private:
  // With the bias before it, in one kernel or by plain operators.
  Var activated(GraphBuilder& g, const MegatronStage& stage, Var x) const;

  MegatronNorm norm_;
  Var fc1_weight_, fc1_bias_, fc2_weight_, fc2_bias_;
};

// Every head with keys and values of its own, or groups of heads that share them.
class MegatronSelfAttention {
 public:
  MegatronSelfAttention(GraphBuilder& g, const MegatronSizes& sizes, const std::string& layer);
  Var operator()(GraphBuilder& g, const Var& input, const MegatronContext& context) const;
  [[nodiscard]] const Var& bias() const { return proj_bias_; }

 private:
  // As they are where there is no such norm.
  static Var normed(GraphBuilder& g, const Var& heads, const MegatronNorm& norm);
  // Queries or keys by rotary positions.
  Var turned(GraphBuilder& g, Var x, const Var& angles) const;

  const MegatronSizes& sizes_;
  std::string name_;
  Var proj_weight_, proj_bias_;
  MegatronNorm norm_;
  Var qkv_weight_, qkv_bias_;
  MegatronNorm query_norm_, key_norm_;  // of each head
};

// Queries from the decoder, keys and values from what the encoder gave; behind a norm of its own.
class MegatronCrossAttention {
 public:
  MegatronCrossAttention(GraphBuilder& g, const MegatronSizes& sizes, const std::string& layer);
  Var operator()(GraphBuilder& g, const Var& input, const MegatronContext& context) const;
  [[nodiscard]] const Var& bias() const { return proj_bias_; }

 private:
  const MegatronSizes& sizes_;
  std::string name_;
  MegatronNorm norm_;
  Var proj_weight_, proj_bias_, query_weight_, query_bias_, key_weight_, key_bias_;
};

// As the modules' constructors declare them: attention, then the MLP. Of each there is one kind.
class MegatronLayer {
 public:
  MegatronLayer(GraphBuilder& g, const MegatronSizes& sizes, const std::string& path);
  Var operator()(GraphBuilder& g, Var input, const MegatronContext& context) const;

 private:
  // The mixture of experts, behind a norm of its own.
  struct Mixture {
    MegatronNorm norm;
    MegatronExperts experts;
    std::optional<MegatronSharedExpert> shared;
  };
  Var add(GraphBuilder& g, Var x, const Var& its_bias, Var residual) const;
  Var run_mlp(GraphBuilder& g, const Var& input, const Var& gathered) const;

  const MegatronSizes& sizes_;
  std::string name_;
  std::optional<MegatronSelfAttention> heads_;
  std::optional<MegatronLatentAttention> latent_;
  std::optional<MegatronCrossAttention> cross_;
  std::optional<MegatronMlp> dense_;
  std::optional<Mixture> mixture_;
};

}  // namespace headroom::model
