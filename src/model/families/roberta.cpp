// RoBERTa, XLM-RoBERTa, CamemBERT: BERT's layers. Positions are counted from the tokens that are no
// padding, and the classifier is a layer on the first token's state, without BERT's pooler.
#include "model/families/roberta.h"

#include <optional>
#include <string>

#include "model/blocks/activation.h"
#include "model/blocks/norm.h"
#include "model/builder.h"
#include "model/families/bert_heads.h"
#include "model/families/bert_layers.h"
#include "model/families/config.h"

namespace headroom::model {

namespace {

Result<BertConfig> read_config(const text::JsonView& json, const BuildOptions& options,
                               const BertDefaults& defaults) {
  ConfigReader in(json);
  const BertConfig c = read_bert_config(in, options, defaults);
  HEADROOM_ASSIGN(const auto padding, json.optional_int("pad_token_id", 0, c.vocabulary - 1));
  constexpr int64_t kPadding = 1;  // RobertaConfig's
  in.require_positions(options, c.positions - padding.value_or(kPadding) - 1);
  if (in.error()) return *in.error();
  return c;
}

class Embeddings {
 public:
  // `head` is the head's weight where that was declared before, and is the same.
  Embeddings(GraphBuilder& g, const BertConfig& c, const std::string& name, const Var& head)
      : words(declare_words(g, c, name + ".word_embeddings.weight", head)),
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
  static Var declare_words(GraphBuilder& g, const BertConfig& c, const std::string& name,
                           const Var& head) {
    if (head) return g.tied(name, head, ParameterRole::lm_head);
    return g.parameter(name, {c.vocabulary, c.hidden}, ParameterRole::embedding);
  }
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

class Encoder {
 public:
  Encoder(GraphBuilder& g, const BertConfig& c, const Var& head)
      : embeddings_(g, c, "roberta.embeddings", head), layers_(g, c, "roberta") {}

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& ids) const {
    const Var embedded = embeddings_(g, options, ids);
    return layers_(g, options, embedded);
  }
  [[nodiscard]] const Var& words() const { return embeddings_.words; }

 private:
  Embeddings embeddings_;
  BertLayers layers_;
};

void classify(GraphBuilder& g, const BertConfig& c, const BuildOptions& options, bool head_first) {
  const auto make_head = [&] {
    return FirstTokenClassifier(g, c, *options.classes, Activation::tanh);
  };
  std::optional<FirstTokenClassifier> head;
  if (head_first) head = make_head();
  const Encoder encoder(g, c, {});
  if (!head_first) head = make_head();
  run_encoder(g, options, *options.classes, encoder, *head);
}

void fill_in(GraphBuilder& g, const BertConfig& c, const BuildOptions& options, bool head_first) {
  const auto make_head = [&](const Var& words) {
    return bert_token_head(g, c, {"lm_head", ".dense", ".layer_norm"}, Activation::gelu, words);
  };
  TokenHead head;
  if (head_first) head = make_head({});
  const Encoder encoder(g, c, c.tied ? head.weight : Var());
  if (!head_first) head = make_head(encoder.words());
  run_encoder(g, options, c.vocabulary, encoder, head);
}

Result<Graph> build(const text::JsonView& json, const BuildOptions& options,
                    const BertDefaults& defaults, bool head_first) {
  HEADROOM_ASSIGN(const BertConfig c, read_config(json, options, defaults));
  GraphBuilder g;
  options.classes ? classify(g, c, options, head_first) : fill_in(g, c, options, head_first);
  return g.finish();
}

}  // namespace

Result<Graph> build_roberta(const text::JsonView& json, const BuildOptions& options) {
  return build(json, options, {.vocabulary = 50265}, false);
}

Result<Graph> build_xlm_roberta(const text::JsonView& json, const BuildOptions& options) {
  return build(json, options, {}, false);
}

Result<Graph> build_camembert(const text::JsonView& json, const BuildOptions& options) {
  return build(json, options, {}, true);
}

}  // namespace headroom::model
