// ELECTRA (transformers' ElectraForMaskedLM, ElectraForSequenceClassification): BERT's layers on
// embeddings that may be narrower, with a projection in between where they are. The head that fills
// in words goes back to the embeddings' width.
#include "model/families/electra.h"

#include <optional>
#include <string>

#include "model/blocks/linear.h"
#include "model/builder.h"
#include "model/families/bert_heads.h"
#include "model/families/bert_layers.h"
#include "model/families/config.h"

namespace headroom::model {

namespace {

struct Config {
  BertConfig bert;
  int64_t width;  // of the embeddings
};

Result<Config> read_config(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  const BertConfig bert = read_bert_config(in, options, {.hidden = 256, .inner = 1024, .heads = 4});
  const Config c{bert, in.size({"embedding_size"}, 128)};
  in.require_positions(options, bert.positions);
  if (in.error()) return *in.error();
  return c;
}

class Encoder {
 public:
  Encoder(GraphBuilder& g, const Config& c)
      : embeddings_(g, c.bert, c.width, "electra.embeddings"),
        project_(projection(g, c)),
        layers_(g, c.bert, "electra") {}

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& ids) const {
    Var embedded = embeddings_(g, options, ids);
    if (project_) embedded = (*project_)(g, embedded);
    return layers_(g, options, embedded);
  }
  [[nodiscard]] const Var& words() const { return embeddings_.words; }

 private:
  static std::optional<Linear> projection(GraphBuilder& g, const Config& c) {
    if (c.width == c.bert.hidden) return {};
    return Linear(g, "electra.embeddings_project", c.width, c.bert.hidden, true);
  }
  BertEmbeddings embeddings_;
  std::optional<Linear> project_;
  BertLayers layers_;
};

TokenHead token_head(GraphBuilder& g, const Config& c, const Var& words) {
  TokenHead head{.name = "generator_lm_head", .activation = Activation::gelu};
  head.norm = LayerNorm(g, "generator_predictions.LayerNorm", c.width);
  head.dense = Linear(g, "generator_predictions.dense", c.bert.hidden, c.width, true);
  head.weight =
      token_weight(g, head.name + ".weight", {c.bert.vocabulary, c.width}, c.bert.tied, words);
  head.bias = g.parameter(head.name + ".bias", {c.bert.vocabulary}, ParameterRole::bias);
  return head;
}

}  // namespace

Result<Graph> build_electra(const text::JsonView& json, const BuildOptions& options) {
  HEADROOM_ASSIGN(const Config c, read_config(json, options));
  GraphBuilder g;
  const Encoder encoder(g, c);
  if (options.classes) {
    const FirstTokenClassifier head(g, c.bert, *options.classes, Activation::gelu);
    run_encoder(g, options, *options.classes, encoder, head);
  } else {
    run_encoder(g, options, c.bert.vocabulary, encoder, token_head(g, c, encoder.words()));
  }
  return g.finish();
}

}  // namespace headroom::model
