// Normalizations as models write them out: transformers' RMSNorm is seven eager operators, with the
// input widened to float32; torch.nn.LayerNorm is one.
#pragma once

#include <cstdint>
#include <string>

#include "model/builder.h"

namespace headroom::model {

// How a normalized vector meets its weight.
enum class RmsProduct : uint8_t {
  narrow,   // cast back, then weighted
  wide,     // gpt-oss, OLMo 2: weighted in float32, then cast back
  widened,  // Helium: the same, the weight widened by itself
};

struct RmsNorm {
  Var weight;
  RmsProduct product;

  RmsNorm(GraphBuilder& g, const std::string& name, int64_t size,
          RmsProduct how = RmsProduct::narrow)
      : weight(g.parameter(name + ".weight", {size}, ParameterRole::norm)), product(how) {}
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
