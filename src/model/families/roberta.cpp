// RoBERTa, XLM-RoBERTa: BERT's layers. Positions are counted from the tokens that are no padding,
// and the classifier is a layer on the first token's state, without BERT's pooler.
#include "model/families/roberta.h"

#include <string>

#include "model/blocks/activation.h"
#include "model/blocks/head.h"
#include "model/blocks/linear.h"
#include "model/blocks/loss.h"
#include "model/blocks/norm.h"
#include "model/builder.h"
#include "model/families/bert_layers.h"
#include "model/families/config.h"

namespace headroom::model {

namespace {

Result<BertConfig> read_config(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  const BertConfig c = read_bert_config(in, options);
  HEADROOM_ASSIGN(const auto padding, json.optional_int("pad_token_id", 0, c.vocabulary - 1));
  constexpr int64_t kPadding = 1;  // RobertaConfig's
  in.require_positions(options, c.positions - padding.value_or(kPadding) - 1);
  if (in.error()) return *in.error();
  return c;
}

class Embeddings {
 public:
  Embeddings(GraphBuilder& g, const BertConfig& c, const std::string& name)
      : words(g.parameter(name + ".word_embeddings.weight", {c.vocabulary, c.hidden},
                          ParameterRole::embedding)),
        types_(g.parameter(name + ".token_type_embeddings.weight", {c.types, c.hidden},
                           ParameterRole::embedding)),
        norm_(g, name + ".LayerNorm", c.hidden),
        places_(g.parameter(name + ".position_embeddings.weight", {c.positions, c.hidden},
                            ParameterRole::embedding)),
        dropout_(c.hidden_dropout),
        position_ids_(g.buffer(name + ".position_ids", {1, c.positions}, DType::i64, false)),
        type_ids_(g.buffer(name + ".token_type_ids", {1, c.positions}, DType::i64, false)) {}

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& ids) const {
    const Var positions = positions_of(g, ids);
    return bert_embeddings(g, options, {words, types_, places_, type_ids_, norm_, dropout_}, ids,
                           positions);
  }

  Var words;

 private:
  // create_position_ids_from_input_ids
  static Var positions_of(GraphBuilder& g, const Var& ids) {
    const Var is_token = g.to(g.compare(ids), DType::i32);
    const Var places = g.mul(g.add(g.to(g.cumsum(is_token, 1), DType::i32), 0.0), is_token);
    return g.add(g.to(places, DType::i64), 1.0);
  }

  Var types_;
  LayerNorm norm_;
  Var places_;
  double dropout_;
  Var position_ids_, type_ids_;
};

// RobertaClassificationHead
class Classifier {
 public:
  Classifier(GraphBuilder& g, const BertConfig& c, int64_t classes)
      : dense_(g, kName + ".dense", c.hidden, c.hidden, true),
        weight_(
            g.parameter(kName + ".out_proj.weight", {classes, c.hidden}, ParameterRole::lm_head)),
        bias_(g.parameter(kName + ".out_proj.bias", {classes}, ParameterRole::bias)),
        dropout_(c.classifier_dropout) {}

  Var operator()(GraphBuilder& g, const Var& hidden) const {
    RegionScope region(g, RegionKind::lm_head, kName, {&hidden});
    Var x = g.select(hidden, 1, 0);
    x = g.dropout(x, dropout_);
    x = dense_(g, x);
    x = g.tanh(x);
    x = g.dropout(x, dropout_);
    x = g.linear(x, weight_, bias_);
    region.leave({&x});
    return x;
  }

 private:
  inline static const std::string kName = "classifier";
  Linear dense_;
  Var weight_, bias_;
  double dropout_;
};

// The head is made after all that it stands on.
template <typename MakeHead>
void build(GraphBuilder& g, const BertConfig& c, const BuildOptions& options, int64_t classes,
           const MakeHead& make_head) {
  const Embeddings embeddings(g, c, "roberta.embeddings");
  const BertLayers layers(g, c, "roberta");
  const auto head = make_head(embeddings.words);
  const Var ids = g.input("input_ids", {options.batch, options.sequence}, DType::i64);
  const Var labels = labels_input(g, options);
  Var x;
  {
    const Var embedded = embeddings(g, options, ids);
    x = layers(g, options, embedded);
  }
  const Var logits = head(g, x);
  const Var loss = token_loss(g, options, logits, labels, classes);
  g.set_outputs(loss, logits, {});
}

}  // namespace

Result<Graph> build_roberta(const text::JsonView& json, const BuildOptions& options) {
  HEADROOM_ASSIGN(const BertConfig c, read_config(json, options));
  GraphBuilder g;
  if (options.classes) {
    build(g, c, options, *options.classes,
          [&](const Var&) { return Classifier(g, c, *options.classes); });
  } else {
    build(g, c, options, c.vocabulary, [&](const Var& words) {
      return BertTokenHead(g, c, {"lm_head", ".dense", ".layer_norm", Activation::gelu}, words);
    });
  }
  return g.finish();
}

}  // namespace headroom::model
