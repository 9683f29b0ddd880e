#include "step/transform/dora.h"

namespace headroom::step {

using model::GraphBuilder;
using model::Var;

namespace {

// B(A(identity)).T, with the history that makes it hold the identity for as long as it is there.
Var lora_weight(GraphBuilder& g, const DoraCall& call) {
  const Var identity = g.full_like({call.in_features, call.in_features}, call.a);
  return g.transpose(g.linear(g.linear(identity, call.a), call.b), 0, 1);
}

Var weight_norm(GraphBuilder& g, const Var& weight, const Var& lora_weight, const DoraCall& call) {
  const Var rows = call.conv1d ? g.transpose(weight, 0, 1) : weight;
  Var scaled = g.mul(lora_weight, call.scaling);
  const Var sum = g.add(rows, std::move(scaled));
  return g.vector_norm(sum, 1);
}

}  // namespace

Var dora_delta(GraphBuilder& g, DoraCall call) {
  const Var product = g.to_like(lora_weight(g, call), call.x);
  const Var weight = g.to_like(call.weight, call.x);
  const Var norm = g.detach(weight_norm(g, weight, g.detach(product), call));
  const Var scale = g.view(g.div(call.magnitude, norm), {1, -1});
  const Var result = g.linear(g.linear(call.x, call.a), call.b);
  Var base = call.base_result;
  if (call.drops) {
    base = g.linear(call.x, call.conv1d ? g.transpose(weight, 0, 1) : weight);
  } else if (call.bias) {
    base = g.sub(std::move(base), call.bias);
  }
  Var direction = g.mul(g.add(scale, -1.0), base);
  Var magnitude = g.mul(g.mul(scale, result), call.scaling);
  return g.add(std::move(direction), std::move(magnitude));
}

}  // namespace headroom::step
