#include "model/families/bert_heads.h"

namespace headroom::model {

Var TokenHead::operator()(GraphBuilder& g, const Var& hidden) const {
  RegionScope region(g, RegionKind::lm_head, name, {&hidden});
  Var x = dense(g, hidden);
  x = activate(g, activation, x);
  x = norm(g, x);
  x = g.linear(x, weight, bias);
  region.leave({&x});
  return x;
}

Var token_weight(GraphBuilder& g, const std::string& name, const Dims& shape, bool tied,
                 const Var& words) {
  if (!tied) return g.parameter(name, shape, ParameterRole::lm_head);
  // What both share is an embedding to all who ask, under whichever name it comes first.
  if (!words) return g.parameter(name, shape, ParameterRole::embedding);
  return g.tied(name, words, ParameterRole::lm_head);
}

TokenHead bert_token_head(GraphBuilder& g, const BertConfig& c, const BertHeadNames& names,
                          Activation activation, const Var& words) {
  TokenHead head{.name = names.name, .activation = activation};
  const Var bias = g.parameter(names.name + ".bias", {c.vocabulary}, ParameterRole::bias);
  head.dense = Linear(g, names.name + names.dense, c.hidden, c.hidden, true);
  head.norm = LayerNorm(g, names.name + names.norm, c.hidden);
  const std::string decoder = names.name + ".decoder";
  head.weight = token_weight(g, decoder + ".weight", {c.vocabulary, c.hidden}, c.tied, words);
  head.bias = c.tied ? g.tied(decoder + ".bias", bias, ParameterRole::bias)
                     : g.parameter(decoder + ".bias", {c.vocabulary}, ParameterRole::bias);
  return head;
}

namespace {

const std::string kClassifier = "classifier";

}  // namespace

FirstTokenClassifier::FirstTokenClassifier(GraphBuilder& g, const BertConfig& c, int64_t classes,
                                           Activation activation)
    : dense_(g, kClassifier + ".dense", c.hidden, c.hidden, true),
      weight_(g.parameter(kClassifier + ".out_proj.weight", {classes, c.hidden},
                          ParameterRole::lm_head)),
      bias_(g.parameter(kClassifier + ".out_proj.bias", {classes}, ParameterRole::bias)),
      activation_(activation),
      dropout_(c.classifier_dropout) {}

Var FirstTokenClassifier::operator()(GraphBuilder& g, const Var& hidden) const {
  RegionScope region(g, RegionKind::lm_head, kClassifier, {&hidden});
  Var x = g.select(hidden, 1, 0);
  x = g.dropout(x, dropout_);
  x = dense_(g, x);
  x = activate(g, activation_, x);
  x = g.dropout(x, dropout_);
  x = g.linear(x, weight_, bias_);
  region.leave({&x});
  return x;
}

}  // namespace headroom::model
