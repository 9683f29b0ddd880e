#include "model/blocks/activation.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace headroom::model {

Result<Activation> read_activation(const text::JsonView& config, const char* key,
                                   Activation otherwise) {
  struct Name {
    std::string_view name;
    Activation activation;
  };
  static constexpr Name kNames[] = {
      {"gelu", Activation::gelu},
      {"gelu_new", Activation::gelu_new},
      {"gelu_fast", Activation::gelu_fast},
      {"gelu_pytorch_tanh", Activation::gelu_tanh},
      {"silu", Activation::silu},
      {"swish", Activation::silu},
      {"relu", Activation::relu},
      {"relu2", Activation::relu2},
      {"quick_gelu", Activation::quick_gelu},
      {"tanh", Activation::tanh},
  };
  HEADROOM_ASSIGN(const auto name, config.optional_string(key));
  if (!name) return otherwise;
  const auto* found = std::ranges::find(kNames, *name, &Name::name);
  if (found != std::end(kNames)) return found->activation;
  return config.error_at(
      key, "unknown activation function '" + *name + "'",
      "known: gelu, gelu_new, gelu_fast, gelu_pytorch_tanh, silu, relu, relu2, quick_gelu, tanh");
}

namespace {

// 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))), written out as transformers does.
Var gelu_new(GraphBuilder& g, const Var& x) {
  Var half = g.mul(x, 0.5);
  return g.mul(std::move(half),
               g.add(g.tanh(g.mul(g.add(x, g.mul(g.pow(x, 3.0), 0.044715)), 0.797885)), 1.0));
}

// 0.5 * x * (1 + tanh(x * 0.7978 * (1 + 0.044715 * x * x)))
Var gelu_fast(GraphBuilder& g, const Var& x) {
  Var half = g.mul(x, 0.5);
  Var scaled = g.mul(x, 0.7978845608);
  Var square = g.mul(g.mul(x, 0.044715), x);
  Var inner = g.mul(std::move(scaled), g.add(std::move(square), 1.0));
  return g.mul(std::move(half), g.add(g.tanh(std::move(inner)), 1.0));
}

}  // namespace

Var activate(GraphBuilder& g, Activation activation, const Var& x) {
  switch (activation) {
    case Activation::gelu:
      return g.gelu(x, false);
    case Activation::gelu_tanh:
      return g.gelu(x, true);
    case Activation::gelu_new:
      return gelu_new(g, x);
    case Activation::gelu_fast:
      return gelu_fast(g, x);
    case Activation::silu:
      return g.silu(x);
    case Activation::relu:
      return g.relu(x);
    case Activation::relu2: {
      const Var positive = g.relu(x);
      return g.pow(positive, 2);
    }
    case Activation::quick_gelu:
      return g.mul(x, g.sigmoid(g.mul(x, 1.702)));
    case Activation::tanh:
      return g.tanh(x);
  }
  return {};
}

}  // namespace headroom::model
