// Megatron-LM's multi-latent attention on one rank: queries, and keys with values, come from narrow
// ("latent") vectors, which every tensor parallel rank has whole.
//
// Source: megatron/core/transformer/multi_latent_attention.py (MLASelfAttention), models/gpt/
// gpt_layer_specs.py, fusions/fused_mla_yarn_rope_apply.py, at d98e8a64 (August 2026).
#pragma once

#include <string>

#include "model/megatron_parts.h"

namespace headroom::model {

class MegatronLatentAttention {
 public:
  // Declares its parameters; the norm before it among them.
  MegatronLatentAttention(GraphBuilder& g, const MegatronSizes& sizes, const std::string& layer);

  // From the layer's input to what is added to it; its bias is left to the addition.
  Var operator()(GraphBuilder& g, const Var& input, const MegatronContext& given) const;
  [[nodiscard]] const Var& bias() const { return proj_bias_; }

 private:
  [[nodiscard]] const MegatronLatent& latent() const { return sizes_.stage.model.latent; }
  // The latent vector, normalized where the model does that, by this rank's columns.
  Var raised(GraphBuilder& g, const Var& narrow, const MegatronNorm& norm, const Var& weight) const;
  // The part of queries or keys that carries positions, by plain operators.
  Var turned(GraphBuilder& g, Var x) const;
  // The keys' positions, of the whole sequence.
  Var key_positions(GraphBuilder& g, Var part) const;
  std::vector<Var> by_plain_operators(GraphBuilder& g, Var query, Var both, Var positions) const;
  std::vector<Var> by_fused_kernels(GraphBuilder& g, Var query, Var both, Var positions) const;

  const MegatronSizes& sizes_;
  std::string name_;
  MegatronNorm input_norm_, query_norm_, key_norm_;
  Var proj_weight_, proj_bias_;
  Var query_weight_, query_down_, query_up_, key_down_, key_up_;
};

}  // namespace headroom::model
