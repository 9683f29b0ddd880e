#include "model/blocks/head.h"

#include <utility>

namespace headroom::model {

LmHead::LmHead(GraphBuilder& g, const BuildOptions& options, std::string path, int64_t vocabulary,
               int64_t hidden, const Var& tied_to, bool has_bias)
    : name(options.classes ? "score" : std::move(path)) {
  if (options.classes) {
    weight = g.parameter(name + ".weight", {*options.classes, hidden}, ParameterRole::lm_head);
    return;
  }
  weight = tied_to ? g.tied(name + ".weight", tied_to, ParameterRole::lm_head)
                   : g.parameter(name + ".weight", {vocabulary, hidden}, ParameterRole::lm_head);
  if (has_bias) bias = g.parameter(name + ".bias", {vocabulary}, ParameterRole::bias);
}

Var LmHead::logits(GraphBuilder& g, const Var& x) const {
  RegionScope region(g, RegionKind::lm_head, name, {&x});
  Var logits = g.linear(x, weight, bias);
  region.leave({&logits});
  return logits;
}

void LmHead::finish(GraphBuilder& g, const BuildOptions& options, const Var& x, const Var& ids,
                    const Var& labels, int64_t vocabulary, const OwnLoss& own) const {
  if (options.classes) return classify(g, options, x, ids, labels);
  Var logits = this->logits(g, x);
  Var loss;
  if (options.labels) loss = causal_lm_loss(g, options, logits, labels, vocabulary, own);
  g.set_outputs(loss, logits, {});
}

// The config is taken to name a padding token, without which transformers takes one sequence alone.
void LmHead::classify(GraphBuilder& g, const BuildOptions& options, const Var& x, const Var& ids,
                      const Var& labels) const {
  const Var logits = this->logits(g, x);
  const Var is_token = g.to(g.compare(ids), DType::i32);
  const Var places = g.arange(options.sequence, DType::i32);
  const Var last = g.argmax(g.mul(places, is_token), -1);
  const Var pooled = g.index_pairs(logits, g.arange(options.batch), last);
  const Var loss = token_loss(g, options, pooled, labels, *options.classes);
  g.set_outputs(loss, pooled, {});
}

Var labels_input(GraphBuilder& g, const BuildOptions& options) {
  if (options.classes) return g.input("labels", {options.batch}, DType::i64);
  return g.input("labels", {options.batch, options.sequence}, DType::i64);
}

}  // namespace headroom::model
