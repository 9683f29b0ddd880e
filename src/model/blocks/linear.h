// A linear layer: torch.nn.Linear's parameters and call.
#pragma once

#include <string>

#include "model/builder.h"

namespace headroom::model {

struct Linear {
  Var weight;
  Var bias;  // empty where there is none

  // Declares NAME.weight [out, in] and, where wanted, NAME.bias [out].
  Linear(GraphBuilder& g, const std::string& name, int64_t in, int64_t out, bool has_bias)
      : weight(g.parameter(name + ".weight", {out, in}, ParameterRole::linear)) {
    if (has_bias) bias = g.parameter(name + ".bias", {out}, ParameterRole::bias);
  }
  Var operator()(GraphBuilder& g, const Var& x) const { return g.linear(x, weight, bias); }
};

}  // namespace headroom::model
