// The experts of a mixture: all their weights in two tensors, and the ways in which transformers
// (integrations/moe.py, since 5.0) multiplies by them; or, before 5.0, modules of their own.
//
// Cost of building: a few operators for grouped and batched products, and a dozen an expert for the
// loops, whose sizes follow BuildOptions::tokens_per_expert.
#pragma once

#include <string>
#include <vector>

#include "model/blocks/activation.h"
#include "model/blocks/linear.h"
#include "model/builder.h"
#include "model/options.h"

namespace headroom::model {

struct ExpertsShape {
  int64_t experts = 0;
  int64_t top_k = 0;
  int64_t hidden = 0;
  int64_t intermediate = 0;
  Activation activation = Activation::silu;
  // gpt-oss: weights as [experts, in, out], biases, gate and up interleaved and clamped.
  bool clamped = false;
};

// How many rows each expert gets: what the options say, else a uniform share.
std::vector<int64_t> rows_of_experts(const BuildOptions& options, const ExpertsShape& shape);

// What experts multiply at once: top_k rows of each token, or of what arrived from other ranks.
struct RowsShape {
  int64_t tokens = 0;
  int64_t top_k = 0;
  int64_t hidden = 0;
  bool is_masked = false;  // where some may belong to experts of another rank
};

class Experts {
 public:
  // Declares NAME.gate_up_proj, NAME.down_proj, and their biases where the shape has them: of all
  // experts, or of those that one of BuildOptions::expert_ranks has, which must divide them.
  Experts(GraphBuilder& g, const BuildOptions& options, const ExpertsShape& shape,
          const std::string& name);
  // x [tokens, hidden], chosen and weights [tokens, top_k]; the sum of the chosen experts' outputs.
  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& x, const Var& chosen,
                 const Var& weights) const;

 private:
  Var shared_out(GraphBuilder& g, const BuildOptions& options, const Var& x, const Var& chosen,
                 const Var& weights) const;
  Var grouped(GraphBuilder& g, const RowsShape& shape, const Var& x, const Var& chosen,
              const Var& weights) const;
  Var batched(GraphBuilder& g, const BuildOptions& options, const Var& x, const Var& chosen,
              const Var& weights) const;
  Var looped(GraphBuilder& g, const BuildOptions& options, const Var& x, const Var& chosen,
             const Var& weights) const;
  Var gated(GraphBuilder& g, const Var& both) const;
  struct LoopVariables {
    Var top_k_position, token, current, gate, up, both, gated, output, weighted;
  };
  void turn(GraphBuilder& g, LoopVariables& v, const Var& weights, int64_t expert) const;

  ExpertsShape shape_;
  std::string name_;
  int64_t local_;  // experts that are here
  Var gate_up_, gate_up_bias_, down_, down_bias_;
};

// Mixtral's experts before transformers 5.0: three Linear modules each, in a loop over all experts.
class ExpertModules {
 public:
  // Declares NAME.N.w1, NAME.N.w2 and NAME.N.w3 for each expert N.
  ExpertModules(GraphBuilder& g, const ExpertsShape& shape, const std::string& name);
  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& x, const Var& chosen,
                 const Var& weights) const;

 private:
  struct Expert {
    Linear gate, down, up;
  };
  ExpertsShape shape_;
  std::vector<Expert> experts_;
};

}  // namespace headroom::model
