// The end of a causal language model: lm_head, loss, outputs; or, where sequences are classified
// (transformers' ...ForSequenceClassification), a score of every token, of which each sequence's
// last is taken that is no padding.
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

  // Declares NAME.weight [vocabulary, hidden], which is `tied_to` where that is given; or
  // score.weight [classes, hidden].
  LmHead(GraphBuilder& g, const BuildOptions& options, std::string path, int64_t vocabulary,
         int64_t hidden, const Var& tied_to = {}, bool has_bias = false);

  Var logits(GraphBuilder& g, const Var& x) const;
  // Logits and loss of the hidden states, and the graph's outputs.
  void finish(GraphBuilder& g, const BuildOptions& options, const Var& x, const Var& ids,
              const Var& labels, int64_t vocabulary, const OwnLoss& own) const;

 private:
  void classify(GraphBuilder& g, const BuildOptions& options, const Var& x, const Var& ids,
                const Var& labels) const;
};

// Of each token, or of each sequence.
[[nodiscard]] Var labels_input(GraphBuilder& g, const BuildOptions& options);

}  // namespace headroom::model
