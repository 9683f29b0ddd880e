// What BERT and those after it are made of: sums of embeddings, layers with a norm after each part,
// and the head that fills in words.
#pragma once

#include <memory>
#include <string>

#include "model/blocks/activation.h"
#include "model/blocks/linear.h"
#include "model/blocks/norm.h"
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

// Tables that a family declares in its own order.
struct BertTables {
  const Var& words;     // [vocabulary, hidden]
  const Var& types;     // [types, hidden]
  const Var& places;    // [positions, hidden]
  const Var& type_ids;  // [1, positions], of a sequence that says nothing
  const LayerNorm& norm;
  double dropout;
};

// [batch, sequence, hidden] of token ids [batch, sequence] at positions of one sequence or of each.
[[nodiscard]] Var bert_embeddings(GraphBuilder& g, const BuildOptions& options,
                                  const BertTables& tables, const Var& ids, const Var& positions);

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

// One more layer, then the logits, with the embedding's weight.
class BertTokenHead {
 public:
  // The modules' names within the head, and its activation.
  struct Parts {
    std::string name, dense, norm;
    Activation activation;
  };
  BertTokenHead(GraphBuilder& g, const BertConfig& config, Parts parts, const Var& words);
  [[nodiscard]] Var operator()(GraphBuilder& g, const Var& hidden) const;

 private:
  Parts parts_;
  Var bias_;
  Linear dense_;
  LayerNorm norm_;
  Var weight_, decoder_bias_;
};

}  // namespace headroom::model
