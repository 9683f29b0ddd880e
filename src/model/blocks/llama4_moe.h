// Llama 4's experts: each gets every token, times a score that is nothing but for the experts
// chosen, so that sizes do not depend on the data, and activations grow with the number of experts.
#pragma once

#include <string>

#include "model/blocks/decoder.h"
#include "model/blocks/experts.h"
#include "model/blocks/gated_mlp.h"

namespace headroom::model {

class Llama4Moe {
 public:
  // Declares NAME.experts.{gate_up_proj, down_proj}, NAME.router.weight and NAME.shared_expert.
  Llama4Moe(GraphBuilder& g, const ExpertsShape& shape, const std::string& name);
  FeedForward operator()(GraphBuilder& g, const BuildOptions& options, const Var& x) const;

 private:
  struct Scored {
    Var scores, logits;
  };
  Scored routed(GraphBuilder& g, const Var& rows) const;
  Var through_experts(GraphBuilder& g, const BuildOptions& options, const Var& rows) const;

  ExpertsShape shape_;
  Var gate_up_, down_;
  Linear router_;
  GatedMlp shared_;
};

}  // namespace headroom::model
