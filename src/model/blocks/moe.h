// Routers: which experts a token goes to, and with which weight, family by family.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/blocks/experts.h"
#include "model/blocks/gated_mlp.h"
#include "model/builder.h"
#include "model/options.h"

namespace headroom::model {

// How scores become choices.
enum class Routing : uint8_t {
  softmax_top_k,       // Mixtral, Qwen: softmax over all experts, then the k largest
  top_k_softmax,       // gpt-oss: the k largest logits, then softmax over them
  wide_top_k_softmax,  // Granite: the same in float32, then cast
  sigmoid_top_k,       // MiniMax M2: sigmoid, a correction added for the choice alone
  sigmoid_groups,      // DeepSeek-V3, GLM-4: the same, within the best groups of experts
  softmax_groups,      // DeepSeek-V2: softmax, within the best groups
  sparse_mixer,        // Phi-3.5-MoE: drawn at random, see sparse_mixer.h
  corrected_softmax,   // ERNIE 4.5: softmax in float32, a correction added for the choice alone
};

struct RouterShape {
  Routing routing = Routing::softmax_top_k;
  int64_t hidden = 0;
  int64_t experts = 0;
  int64_t top_k = 0;
  int64_t groups = 1;  // of experts
  int64_t chosen_groups = 1;
  bool limited_to_groups = true;          // DeepSeek-V2's greedy method looks at no groups
  bool normalized = true;                 // weights of a token add up to one
  bool cast_weights = false;              // weights go back to the type of the logits
  std::optional<DType> correction_dtype;  // of the correction, where it is not the model's own
};

// Variables that the caller's Python function holds until it returns.
struct Routed {
  Var logits;
  Var weights;  // [tokens, top_k]
  Var chosen;
};

class Router {
 public:
  // Declares NAME.weight, and what the routing needs besides it.
  Router(GraphBuilder& g, const RouterShape& shape, const std::string& name);
  // x [tokens, hidden], or with more dimensions in front.
  Routed operator()(GraphBuilder& g, const BuildOptions& options, const Var& x) const;

 private:
  Routed by_softmax(GraphBuilder& g, const Var& x) const;
  Routed by_logits(GraphBuilder& g, const Var& x) const;
  Routed by_wide_logits(GraphBuilder& g, const Var& x) const;
  Routed by_sigmoid(GraphBuilder& g, const Var& x) const;
  Routed by_corrected_softmax(GraphBuilder& g, const Var& x) const;
  Routed by_groups(GraphBuilder& g, const BuildOptions& options, const Var& x) const;
  Var masked_to_groups(GraphBuilder& g, const BuildOptions& options, const Var& scores,
                       std::vector<Var>& held) const;

  RouterShape shape_;
  std::string name_;
  Var weight_, bias_, correction_;
};

}  // namespace headroom::model
