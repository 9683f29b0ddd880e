// The two-layer perceptron of most models before Llama: in, activation, out, dropout.
#pragma once

#include <string>

#include "model/blocks/activation.h"
#include "model/blocks/linear.h"

namespace headroom::model {

// residual + dropout(x)
inline Var dropout_add(GraphBuilder& g, const Var& x, const Var& residual, double probability) {
  const Var out = g.dropout(x, probability);
  return g.add(residual, out);
}

inline Var apply(GraphBuilder& g, const BuildOptions& /*options*/, const Linear& layer,
                 const Var& x) {
  return layer(g, x);
}
inline Var apply(GraphBuilder& g, const BuildOptions& options, const Conv1D& layer, const Var& x) {
  return layer(g, options, x);
}

template <typename Projection>
struct Mlp {
  Projection in;
  Projection out;
  Activation activation;
  double dropout;

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& input) const {
    Var x = apply(g, options, in, input);
    x = activate(g, activation, x);
    x = apply(g, options, out, x);
    return g.dropout(x, dropout);
  }
};

}  // namespace headroom::model
