// What the modules of a stage of Megatron-LM's share. Internal to model.
#pragma once

#include <string>

#include "model/builder.h"
#include "model/megatron.h"

namespace headroom::model {

// The sizes that a layer's operators have on one rank.
struct MegatronSizes {
  explicit MegatronSizes(const MegatronStage& s)
      : stage(s),
        local_sequence(s.sequence / s.rank.context),
        sequence_ranks(s.rank.sequence_parallel ? s.rank.tensor : 1),
        heads(s.model.heads / s.rank.tensor),
        kv_heads(s.model.kv_heads / s.rank.tensor) {}
  const MegatronStage& stage;
  bool is_encoder = false;         // whose tokens see all others, but for padding
  bool is_behind_encoder = false;  // whose tokens see what an encoder gave
  int64_t local_sequence;          // with context parallelism
  int64_t sequence_ranks;          // that share it between the matrices
  int64_t heads, kv_heads;
  [[nodiscard]] int64_t hidden_rows() const { return local_sequence / sequence_ranks; }
};

// A matrix that the tensor parallel ranks share.
inline Attributes divided(const MegatronRank& rank) {
  Attributes attributes;
  attributes.ints = {rank.tensor, rank.sequence_parallel ? 1 : 0, rank.fused_accumulation ? 1 : 0};
  return attributes;
}

// A matrix that each of them has, over its own part of the sequence.
inline Attributes undivided(const MegatronRank& rank) {
  Attributes attributes;
  attributes.ints = {1, 0, rank.fused_accumulation ? 1 : 0};
  return attributes;
}

// A product of Transformer Engine's, in FP8 where the model is; `keeps_original`: what comes in is
// kept by others as well, so that Megatron-LM has the module keep the same (save_original_input).
inline Attributes in_fp8(Attributes attributes, const MegatronModel& m,
                         bool keeps_original = false) {
  if (!m.fp8.is_on()) return attributes;
  // Delayed scales would have to be those of the time.
  const bool keeps = keeps_original && m.fp8.recipe != op::Fp8Recipe::delayed;
  attributes.ints.push_back(static_cast<int64_t>(m.fp8.recipe));
  attributes.ints.push_back(keeps ? 1 : 0);
  return attributes;
}

// What a layer is given besides its input; each may be empty.
struct MegatronContext {
  Var angles;    // of rotary positions
  Var gathered;  // the engine's buffer, of gathered sequences and of Megatron-LM's own scores
  Var mask;      // of attention, which the loader made
  Var encoded;   // to a decoder's layer: what the encoder gave
  int64_t encoded_sequence = 0;
};

// LayerNorm's or RMSNorm's parameters.
struct MegatronNorm {
  Var weight, bias;
  MegatronNorm() = default;
  MegatronNorm(GraphBuilder& g, const std::string& name, const MegatronModel& m, int64_t width)
      : weight(g.parameter(name + "weight", {width}, ParameterRole::norm)) {
    if (!m.rms_norm) bias = g.parameter(name + "bias", {width}, ParameterRole::norm);
  }
};

}  // namespace headroom::model
