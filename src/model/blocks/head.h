// The end of a causal language model: lm_head, loss, outputs.
#pragma once

#include <string>

#include "model/blocks/loss.h"
#include "model/builder.h"
#include "model/options.h"

namespace headroom::model {

struct LmHead {
  std::string name;
  Var weight;
  Var bias;  // empty where there is none

  // Declares NAME.weight [vocabulary, hidden], which is `tied_to` where that is given.
  LmHead(GraphBuilder& g, std::string path, int64_t vocabulary, int64_t hidden,
         const Var& tied_to = {}, bool has_bias = false);

  Var logits(GraphBuilder& g, const Var& x) const;
  // Logits and loss of the hidden states, and the graph's outputs.
  void finish(GraphBuilder& g, const BuildOptions& options, const Var& x, const Var& labels,
              int64_t vocabulary, const OwnLoss& own) const;
};

}  // namespace headroom::model
