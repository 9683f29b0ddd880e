#include "model/blocks/moe.h"

#include "model/blocks/sparse_mixer.h"

namespace headroom::model {

namespace {

Var router_weight(GraphBuilder& g, const RouterShape& shape, const std::string& name) {
  const Dims sizes{shape.experts, shape.hidden};
  // ERNIE's is in float32, whatever the model's type.
  if (shape.routing == Routing::corrected_softmax) {
    return g.parameter(name, sizes, ParameterRole::linear, DType::f32);
  }
  return g.parameter(name, sizes, ParameterRole::linear);
}

}  // namespace

Router::Router(GraphBuilder& g, const RouterShape& shape, const std::string& name)
    : shape_(shape), name_(name), weight_(router_weight(g, shape, name + ".weight")) {
  if (shape.routing == Routing::top_k_softmax) {
    bias_ = g.parameter(name + ".bias", {shape.experts}, ParameterRole::bias);
  }
  const std::string correction = ".e_score_correction_bias";
  if (shape.routing == Routing::sigmoid_groups) {
    correction_ = g.buffer(name + correction, {shape.experts}, shape.correction_dtype, true);
  }
  if (shape.routing == Routing::corrected_softmax) {  // a parameter, and yet without a gradient
    correction_ = g.parameter(name + ".moe_statics" + correction, {1, shape.experts},
                              ParameterRole::other, DType::f32, false);
  }
  if (shape.routing == Routing::sigmoid_top_k) {  // the module around the router holds it
    const std::string outer = name.substr(0, name.rfind('.'));
    correction_ = g.buffer(outer + correction, {shape.experts}, shape.correction_dtype, true);
  }
}

Routed Router::operator()(GraphBuilder& g, const BuildOptions& options, const Var& x) const {
  switch (shape_.routing) {
    case Routing::softmax_top_k:
      return by_softmax(g, x);
    case Routing::top_k_softmax:
      return by_logits(g, x);
    case Routing::wide_top_k_softmax:
      return by_wide_logits(g, x);
    case Routing::sigmoid_top_k:
      return by_sigmoid(g, x);
    case Routing::sigmoid_groups:
    case Routing::softmax_groups:
      return by_groups(g, options, x);
    case Routing::sparse_mixer:
      return sparse_mixer(g, options, g.linear(x, weight_), shape_.experts, name_);
    case Routing::corrected_softmax:
      return by_corrected_softmax(g, x);
  }
  return {};
}

Routed Router::by_softmax(GraphBuilder& g, const Var& x_in) const {
  const Var x = g.reshape(x_in, {-1, shape_.hidden});
  const Var logits = g.linear(x, weight_);
  // Mixtral casts first, the others let softmax widen.
  const Var scores = shape_.cast_weights ? g.softmax(logits, -1, DType::f32)
                                         : g.softmax(g.to(logits, DType::f32), -1);
  const auto top = g.topk(scores, shape_.top_k);
  Var weights = top[0];
  if (shape_.normalized) weights = g.div_assign(weights, g.sum(weights, {-1}, true));
  if (shape_.cast_weights) weights = g.to_like(weights, logits);
  return {logits, weights, top[1]};
}

Routed Router::by_logits(GraphBuilder& g, const Var& x) const {
  const Var logits = g.linear(x, weight_, bias_);
  const auto top = g.topk(logits, shape_.top_k);
  const Var weights = g.softmax(top[0], 1);
  return {logits, weights, top[1]};
}

Routed Router::by_wide_logits(GraphBuilder& g, const Var& x) const {
  Var logits;
  {
    const Var narrow = g.linear(x, weight_);
    logits = g.to(narrow, DType::f32);
  }
  const auto top = g.topk(logits, shape_.top_k);
  Var weights = g.softmax(top[0], -1);
  weights = g.to_like(weights, x);
  return {logits, weights, top[1]};
}

Routed Router::by_sigmoid(GraphBuilder& g, const Var& x_in) const {
  const Var x = g.reshape(x_in, {-1, shape_.hidden});
  const Var logits = g.linear(x, weight_);
  const Var scores = g.sigmoid(g.to(logits, DType::f32));
  const Var for_choice = g.add(scores, correction_);
  const auto top = g.topk(for_choice, shape_.top_k);
  Var weights = g.gather(scores, 1, top[1]);
  weights = g.div_assign(weights, g.sum(weights, {-1}, true));
  return {logits, weights, top[1]};
}

Routed Router::by_corrected_softmax(GraphBuilder& g, const Var& x) const {
  const Var logits = g.linear(g.to(x, DType::f32), weight_);
  Var weights = g.softmax(logits, 1, DType::f32);
  std::vector<Var> top;  // Python's `_` holds what was chosen by
  {
    Var corrected = g.add(weights, g.squeeze(correction_, 0));
    top = g.topk(std::move(corrected), shape_.top_k);
  }
  weights = g.gather(weights, -1, top[1]);
  {
    Var total = g.clamp(g.sum(weights, {-1}, true));
    weights = g.div(weights, std::move(total));
  }
  weights = g.to_like(weights, x);
  return {logits, weights, top[1]};
}

// Scores of experts outside the best groups become nothing. `held`: what Python still holds.
Var Router::masked_to_groups(GraphBuilder& g, const BuildOptions& options, const Var& scores,
                             std::vector<Var>& held) const {
  const int64_t size = shape_.experts / shape_.groups;
  const std::vector<int64_t> grouped{-1, shape_.groups, size};
  Var group_scores;
  if (shape_.routing == Routing::sigmoid_groups) {
    const Var best_two = g.topk(g.view(scores, grouped), 2)[0];
    group_scores = g.sum(best_two, {-1}, false);
  } else {
    group_scores = g.max(g.view(scores, grouped), -1, false)[0];
  }
  held.push_back(g.topk(group_scores, shape_.chosen_groups)[1]);
  const Var group_mask = g.full({options.batch * options.sequence, shape_.groups}, DType::f32);
  const Var mask = g.reshape(g.expand(g.unsqueeze(group_mask, -1), grouped), {-1, shape_.experts});
  held.insert(held.end(), {group_scores, group_mask, mask});
  return g.masked_fill(scores, g.compare(g.to(mask, DType::boolean)));
}

Routed Router::by_groups(GraphBuilder& g, const BuildOptions& options, const Var& x_in) const {
  const Var x = g.view(x_in, {-1, shape_.hidden});
  Var logits;
  {
    const Var wide = g.to(x, DType::f32);
    logits = g.linear(wide, g.to(weight_, DType::f32));
  }
  std::vector<Var> held;
  if (shape_.routing == Routing::softmax_groups) {
    Var scores = g.softmax(logits, -1, DType::f32);
    if (shape_.limited_to_groups) scores = masked_to_groups(g, options, scores, held);
    const auto top = g.topk(scores, shape_.top_k);
    return {logits, g.mul(top[0], 1.0), top[1]};
  }
  const Var scores = g.sigmoid(logits);
  Var for_choice = g.add(scores, correction_);
  for_choice = masked_to_groups(g, options, for_choice, held);
  const Var chosen = g.topk(for_choice, shape_.top_k)[1];
  Var weights = g.gather(scores, 1, chosen);
  Var total;
  if (shape_.normalized) {
    total = g.add(g.sum(weights, {-1}, true), 1e-20);
    weights = g.div_assign(weights, total);
  }
  weights = g.mul(weights, 1.0);
  return {logits, weights, chosen};
}

}  // namespace headroom::model
