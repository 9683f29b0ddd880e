// What BERT and those after it are made of: sums of embeddings, and layers with a norm after each
// part.
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

// What a config has that leaves them out.
struct BertDefaults {
  int64_t vocabulary = 30522;
  int64_t hidden = 768;
  int64_t inner = 3072;
  int64_t layers = 12;
  int64_t heads = 12;
  int64_t types = 2;  // 0: there may be none
};

// All but how many tokens there may be, which is each family's own. Errors are the reader's.
[[nodiscard]] BertConfig read_bert_config(ConfigReader& in, const BuildOptions& options,
                                          const BertDefaults& defaults = {});

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

// BERT's and ELECTRA's: a token's position is its place in the sequence.
class BertEmbeddings {
 public:
  BertEmbeddings(GraphBuilder& g, const BertConfig& config, int64_t width, const std::string& name);
  [[nodiscard]] Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& ids) const;

  Var words;

 private:
  Var places_, types_;
  LayerNorm norm_;
  double dropout_;
  Var position_ids_, type_ids_;
};

// dense, dropout, then the norm of its sum with what went in (BertSelfOutput, BertOutput).
class BertOutput {
 public:
  BertOutput(GraphBuilder& g, const BertConfig& config, const std::string& name, int64_t in);
  [[nodiscard]] Var operator()(GraphBuilder& g, const Var& input, const Var& residual) const;

 private:
  Linear dense_;
  LayerNorm norm_;
  double dropout_;
};

// BertIntermediate and BertOutput: NAME.intermediate and NAME.output.
class BertFeedForward {
 public:
  BertFeedForward(GraphBuilder& g, const BertConfig& config, const std::string& name);
  [[nodiscard]] Var operator()(GraphBuilder& g, const Var& input) const;

 private:
  std::string name_;
  Activation activation_;
  Linear intermediate_;
  BertOutput output_;
};

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
