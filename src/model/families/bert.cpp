// BERT: an encoder with a norm after each part, and a head that predicts every token from the
// hidden states, with the embedding's weight (transformers' BertForMaskedLM), or one that finds a
// class from the first token's (BertForSequenceClassification).
#include "model/families/bert.h"

#include <string>

#include "model/blocks/head.h"
#include "model/blocks/linear.h"
#include "model/blocks/loss.h"
#include "model/builder.h"
#include "model/families/bert_heads.h"
#include "model/families/bert_layers.h"
#include "model/families/config.h"

namespace headroom::model {

namespace {

using Config = BertConfig;

Result<Config> read_config(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  const Config c = read_bert_config(in, options);
  in.require_positions(options, c.positions);
  if (in.error()) return *in.error();
  return c;
}

// BertPooler and the classifier on it.
class Classifier {
 public:
  Classifier(GraphBuilder& g, const Config& c, int64_t classes)
      : pooler_(g, "bert.pooler.dense", c.hidden, c.hidden, true),
        weight_(g.parameter(kName + ".weight", {classes, c.hidden}, ParameterRole::lm_head)),
        bias_(g.parameter(kName + ".bias", {classes}, ParameterRole::bias)),
        dropout_(c.classifier_dropout) {}

  // What the pooler answered is held by the model's outputs.
  Var pool(GraphBuilder& g, const Var& hidden) const {
    const Var first = g.select(hidden, 1, 0);
    Var x = pooler_(g, first);
    x = g.tanh(x);
    return x;
  }
  Var operator()(GraphBuilder& g, const Var& pooled) const {
    const Var x = g.dropout(pooled, dropout_);
    RegionScope region(g, RegionKind::lm_head, kName, {&x});
    Var logits = g.linear(x, weight_, bias_);
    region.leave({&logits});
    return logits;
  }

 private:
  inline static const std::string kName = "classifier";
  Linear pooler_;
  Var weight_, bias_;
  double dropout_;
};

void classify(GraphBuilder& g, const Config& c, const BuildOptions& options) {
  const BertEmbeddings embeddings(g, c, c.hidden, "bert.embeddings");
  const BertLayers layers(g, c, "bert");
  const Classifier classifier(g, c, *options.classes);
  const Var ids = g.input("input_ids", {options.batch, options.sequence}, DType::i64);
  const Var labels = labels_input(g, options);
  Var x, pooled;
  {
    const Var embedded = embeddings(g, options, ids);
    x = layers(g, options, embedded);
    pooled = classifier.pool(g, x);
  }
  const Var logits = classifier(g, pooled);
  const Var loss = token_loss(g, options, logits, labels, *options.classes);
  g.set_outputs(loss, logits, {});
}

void fill_in(GraphBuilder& g, const Config& c, const BuildOptions& options) {
  const BertEmbeddings embeddings(g, c, c.hidden, "bert.embeddings");
  const BertLayers layers(g, c, "bert");
  const TokenHead head =
      bert_token_head(g, c, {"cls.predictions", ".transform.dense", ".transform.LayerNorm"},
                      c.activation, embeddings.words);
  const auto encode = [&](GraphBuilder& in, const BuildOptions& how, const Var& ids) {
    const Var embedded = embeddings(in, how, ids);
    return layers(in, how, embedded);
  };
  run_encoder(g, options, c.vocabulary, encode, head);
}

}  // namespace

Result<Graph> build_bert(const text::JsonView& json, const BuildOptions& options) {
  HEADROOM_ASSIGN(const Config c, read_config(json, options));
  GraphBuilder g;
  options.classes ? classify(g, c, options) : fill_in(g, c, options);
  return g.finish();
}

}  // namespace headroom::model
