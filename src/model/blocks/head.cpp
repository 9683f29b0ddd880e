#include "model/blocks/head.h"

#include <utility>

namespace headroom::model {

LmHead::LmHead(GraphBuilder& g, std::string path, int64_t vocabulary, int64_t hidden,
               const Var& tied_to, bool has_bias)
    : name(std::move(path)) {
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

void LmHead::finish(GraphBuilder& g, const BuildOptions& options, const Var& x, const Var& labels,
                    int64_t vocabulary, const OwnLoss& own) const {
  Var logits = this->logits(g, x);
  Var loss;
  if (options.labels) loss = causal_lm_loss(g, options, logits, labels, vocabulary, own);
  g.set_outputs(loss, logits, {});
}

}  // namespace headroom::model
