// Normalizations as models write them out: transformers' RMSNorm is seven eager operators, with the
// input widened to float32; torch.nn.LayerNorm is one.
#pragma once

#include <string>

#include "model/builder.h"

namespace headroom::model {

struct RmsNorm {
  Var weight;
  bool wide;  // gpt-oss: multiplied by the weight before it is cast back

  RmsNorm(GraphBuilder& g, const std::string& name, int64_t size, bool wide_product = false)
      : weight(g.parameter(name + ".weight", {size}, ParameterRole::norm)), wide(wide_product) {}
  Var operator()(GraphBuilder& g, const Var& input) const;
};

// T5's: the input itself is scaled, in float32, then cast back and weighted.
struct WideScaleNorm {
  Var weight;

  WideScaleNorm(GraphBuilder& g, const std::string& name, int64_t size)
      : weight(g.parameter(name + ".weight", {size}, ParameterRole::norm)) {}
  Var operator()(GraphBuilder& g, const Var& input) const;
};

struct LayerNorm {
  Var weight;  // empty, as the bias, where there is none
  Var bias;

  LayerNorm() = default;  // neither weight nor bias
  LayerNorm(GraphBuilder& g, const std::string& name, int64_t size, bool has_bias = true)
      : weight(g.parameter(name + ".weight", {size}, ParameterRole::norm)) {
    if (has_bias) bias = g.parameter(name + ".bias", {size}, ParameterRole::norm);
  }
  Var operator()(GraphBuilder& g, const Var& input) const {
    return g.layer_norm(input, weight, bias);
  }
};

}  // namespace headroom::model
