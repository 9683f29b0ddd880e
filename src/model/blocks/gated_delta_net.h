// The linear attention of Qwen3-Next and Qwen3.5: projections, a short causal convolution over the
// sequence, the gated delta rule, a gated norm.
//
// Instead of keys and values its cache holds the last inputs of the convolution and one matrix a
// head, whatever the length.
//
// Source: Qwen3NextGatedDeltaNet and Qwen3_5GatedDeltaNet (transformers 5.23), on the paths without
// flash-linear-attention and causal-conv1d.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "model/blocks/delta_rule.h"
#include "model/blocks/linear.h"
#include "model/builder.h"
#include "model/options.h"

namespace headroom::model {

struct DeltaNetShape : DeltaRuleShape {
  int64_t hidden = 0;
  int64_t kernel = 4;  // of the convolution
  // Qwen3-Next: query, key, value and gate of a key head side by side in one projection, and the
  // two numbers of a head in another. Qwen3.5 has a projection for each.
  bool grouped_projections = false;
};

// The RMSNorm over a head that is multiplied by silu of a gate (FLA's, in torch operators).
struct GatedRmsNorm {
  Var weight;

  GatedRmsNorm(GraphBuilder& g, const std::string& name, int64_t size)
      : weight(g.parameter(name + ".weight", {size}, ParameterRole::norm)) {}
  Var operator()(GraphBuilder& g, const Var& input, const Var& gate) const;
};

class GatedDeltaNet {
 public:
  // Declares NAME.{dt_bias, A_log, conv1d, in_proj_*, norm, out_proj}.
  GatedDeltaNet(GraphBuilder& g, const DeltaNetShape& shape, const std::string& name);
  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& x) const;

 private:
  // What the projections give: `mixed` goes through the convolution. `held`: Python's variables.
  struct Projected {
    Var mixed, gate, beta, decay;
    std::array<Var, 2> held;
    std::array<Var, 3> parts;
  };
  Projected projected(GraphBuilder& g, const BuildOptions& options, const Var& x) const;
  Projected from_groups(GraphBuilder& g, const BuildOptions& options, const Var& x) const;
  Var convolved(GraphBuilder& g, const Var& mixed, int64_t length) const;
  Var convolved_behind(GraphBuilder& g, const Var& mixed, const Var& last) const;
  Var convolved_with_cache(GraphBuilder& g, const BuildOptions& options, const Var& mixed,
                           const std::string& cache) const;
  Var ruled(GraphBuilder& g, const BuildOptions& options, const Projected& p, const Var& decay,
            const Var& beta, const std::string& cache, Var& state) const;

  DeltaNetShape s_;
  int64_t keys_, values_;  // columns
  Var dt_bias_, a_log_, kernel_;
  std::optional<Linear> qkv_, gate_, beta_, decay_;  // qkv_ and beta_ are all of them where grouped
  std::optional<GatedRmsNorm> norm_;
  std::optional<Linear> out_;
};

}  // namespace headroom::model
