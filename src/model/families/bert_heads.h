// What stands on an encoder's hidden states: the head that fills in words, the one that finds a
// class from the first token's state, and how either ends a forward function.
#pragma once

#include <string>

#include "model/blocks/activation.h"
#include "model/blocks/head.h"
#include "model/blocks/linear.h"
#include "model/blocks/loss.h"
#include "model/blocks/norm.h"
#include "model/builder.h"
#include "model/families/bert_layers.h"
#include "model/options.h"

namespace headroom::model {

// One more layer, an activation and a norm, then the logits of every token.
struct TokenHead {
  std::string name;  // of the module, or of the last of its modules
  Activation activation = Activation::gelu;
  Linear dense = {};
  LayerNorm norm = {};
  Var weight = {}, bias = {};

  [[nodiscard]] Var operator()(GraphBuilder& g, const Var& hidden) const;
};

// Declares a weight [vocabulary, width] that is the embedding's, where the model ties them.
[[nodiscard]] Var token_weight(GraphBuilder& g, const std::string& name, const Dims& shape,
                               bool tied, const Var& words);

// BERT's, whose bias is a parameter of the head and of its last module. `words` is empty where the
// head is declared before the embeddings.
struct BertHeadNames {
  std::string name, dense, norm;
};
[[nodiscard]] TokenHead bert_token_head(GraphBuilder& g, const BertConfig& config,
                                        const BertHeadNames& names, Activation activation,
                                        const Var& words);

// The first token's state through a layer and an activation, with a dropout before each layer
// (RobertaClassificationHead).
class FirstTokenClassifier {
 public:
  FirstTokenClassifier(GraphBuilder& g, const BertConfig& config, int64_t classes,
                       Activation activation);
  [[nodiscard]] Var operator()(GraphBuilder& g, const Var& hidden) const;

 private:
  Linear dense_;
  Var weight_, bias_;
  Activation activation_;
  double dropout_;
};

using EncoderLoss = Var (*)(GraphBuilder& g, const BuildOptions& options, const Var& logits,
                            const Var& labels, int64_t classes);

// Inputs, hidden states, logits and loss. The hidden states live as long as the model's outputs;
// encode(g, options, ids) makes them.
template <typename Encode, typename Head>
void run_encoder(GraphBuilder& g, const BuildOptions& options, int64_t classes,
                 const Encode& encode, const Head& head, EncoderLoss find_loss = token_loss) {
  const Var ids = g.input("input_ids", {options.batch, options.sequence}, DType::i64);
  const Var labels = labels_input(g, options);
  const Var hidden = encode(g, options, ids);
  const Var logits = head(g, hidden);
  const Var loss = find_loss(g, options, logits, labels, classes);
  g.set_outputs(loss, logits, {});
}

}  // namespace headroom::model
