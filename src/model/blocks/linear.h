// Linear layers: torch.nn.Linear's parameters and call, and transformers' Conv1D, whose weight lies
// the other way round.
#pragma once

#include <string>

#include "model/builder.h"
#include "model/options.h"

namespace headroom::model {

struct Linear {
  Var weight;
  Var bias;  // empty where there is none

  Linear() = default;
  // Declares NAME.weight [out, in] and, where wanted, NAME.bias [out].
  Linear(GraphBuilder& g, const std::string& name, int64_t in, int64_t out, bool has_bias)
      : weight(g.parameter(name + ".weight", {out, in}, ParameterRole::linear)) {
    if (has_bias) bias = g.parameter(name + ".bias", {out}, ParameterRole::bias);
  }
  Var operator()(GraphBuilder& g, const Var& x) const { return g.linear(x, weight, bias); }
};

struct Conv1D {
  Var weight;
  Var bias;
  int64_t out_size;

  // Declares NAME.weight [in, out] and NAME.bias [out].
  Conv1D(GraphBuilder& g, const std::string& name, int64_t in, int64_t out)
      : weight(g.parameter(name + ".weight", {in, out}, ParameterRole::linear)),
        bias(g.parameter(name + ".bias", {out}, ParameterRole::bias)),
        out_size(out) {}
  // x [batch, sequence, in].
  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& x) const {
    const Var rows = g.addmm(bias, g.view(x, {options.batch * options.sequence, -1}), weight);
    return g.view(rows, {options.batch, options.sequence, out_size});
  }
};

}  // namespace headroom::model
