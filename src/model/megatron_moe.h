// Megatron-LM's mixture of experts on one rank: MoELayer with the all-gather dispatcher, whose
// experts run one by one or grouped.
//
// This rank's experts get a stated share of what the group's tokens ask for; of each rank's, no
// more than their capacity.
// Source: megatron/core/transformer/moe/{moe_layer,router,token_dispatcher,experts,shared_experts,
// moe_utils}.py, at d98e8a64 (August 2026).
#pragma once

#include <string>
#include <vector>

#include "model/builder.h"
#include "model/megatron.h"

namespace headroom::model {

// The expert that every token goes to beside those that it is sent to; the tensor parallel ranks
// share its matrices (SharedExpertMLP, without overlap).
class MegatronSharedExpert {
 public:
  MegatronSharedExpert(GraphBuilder& g, const MegatronStage& stage, const std::string& name);
  // x [s, b, h], normalized.
  Var operator()(GraphBuilder& g, const Var& x, const Var& gathered) const;

 private:
  MegatronStage stage_;
  Var fc1_weight_, fc2_weight_;
  Var gate_weight_;  // each token's weight comes from it, where there is one
};

class MegatronExperts {
 public:
  // Declares the router's and the local experts' parameters.
  MegatronExperts(GraphBuilder& g, const MegatronStage& stage, const std::string& name);

  // x [s, b, h], normalized; `gathered` is the engine's buffer, or empty.
  Var operator()(GraphBuilder& g, const Var& x, const Var& gathered) const;

  // Elements of the buffer that tokens are gathered in; 0 where nothing is gathered.
  static int64_t gathered_elements(const MegatronStage& stage);

 private:
  struct Expert {
    Var fc1_weight, fc2_weight;
  };
  Var run_experts(GraphBuilder& g, Var rows, const Var& weights) const;
  Var run_filled(GraphBuilder& g, Var rows, const Var& weights) const;
  Var product(GraphBuilder& g, Var rows, Var Expert::*weight) const;
  [[nodiscard]] int64_t group() const;         // ranks that tokens are gathered from
  [[nodiscard]] int64_t tokens() const;        // of this rank
  [[nodiscard]] int64_t capacity() const;      // of them, of an expert
  [[nodiscard]] int64_t local_tokens() const;  // that its experts get
  [[nodiscard]] int64_t filling() const;       // of those, what quantized experts add

  MegatronStage stage_;
  Var router_;
  std::vector<Expert> experts_;
};

}  // namespace headroom::model
