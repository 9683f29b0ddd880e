// What BERT and those after it are made of between embeddings and head: layers with a norm after
// each part.
#pragma once

#include <memory>
#include <string>

#include "model/blocks/activation.h"
#include "model/builder.h"
#include "model/families/config.h"
#include "model/options.h"

namespace headroom::model {

struct BertConfig {
  int64_t vocabulary, positions, types, hidden, inner, layers, heads;
  double hidden_dropout, attention_dropout, classifier_dropout;
  Activation activation;
  bool tied;
};

// All but how many tokens there may be, which is each family's own. Errors are the reader's.
[[nodiscard]] BertConfig read_bert_config(ConfigReader& in, const BuildOptions& options);

class BertLayers {
 public:
  // Declares NAME.encoder.layer.0 and so on.
  BertLayers(GraphBuilder& g, const BertConfig& config, const std::string& name);
  ~BertLayers();
  // Hidden states from embeddings, [batch, sequence, hidden]. The embeddings are the caller's to
  // keep.
  [[nodiscard]] Var operator()(GraphBuilder& g, const BuildOptions& options,
                               const Var& embedded) const;

 private:
  struct Layers;
  std::unique_ptr<Layers> layers_;
};

}  // namespace headroom::model
