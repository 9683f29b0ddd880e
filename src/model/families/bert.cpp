// BERT: an encoder with a norm after each part, and a head that predicts every token from the
// hidden states, with the embedding's weight (transformers' BertForMaskedLM), or one that finds a
// class from the first token's (BertForSequenceClassification).
#include "model/families/bert.h"

#include <string>
#include <vector>

#include "model/blocks/head.h"
#include "model/blocks/linear.h"
#include "model/blocks/loss.h"
#include "model/blocks/norm.h"
#include "model/blocks/plain_attention.h"
#include "model/builder.h"
#include "model/families/config.h"

namespace headroom::model {

namespace {

struct Config {
  int64_t vocabulary, positions, types, hidden, inner, layers, heads;
  double hidden_dropout, attention_dropout, classifier_dropout;
  Activation activation;
  bool tied;
};

Result<Config> read_config(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  Config c{};
  c.vocabulary = options.vocabulary.value_or(in.size({"vocab_size"}, 30522));
  c.positions = in.size({"max_position_embeddings"}, 512);
  c.types = in.size({"type_vocab_size"}, 2);
  c.hidden = in.size({"hidden_size"}, 768);
  c.inner = in.size({"intermediate_size"}, 3072);
  c.layers = in.size({"num_hidden_layers"}, 12, kLayersMax);
  c.heads = in.size({"num_attention_heads"}, 12, kHeadsMax);
  c.hidden_dropout = in.dropout("hidden_dropout_prob", 0.1, options);
  c.attention_dropout = in.dropout("attention_probs_dropout_prob", 0.1, options);
  c.classifier_dropout = in.dropout("classifier_dropout", c.hidden_dropout, options);
  c.activation = in.activation("hidden_act", Activation::gelu);
  c.tied = in.flag("tie_word_embeddings", true);
  in.require(c.hidden % c.heads == 0, "num_attention_heads", "the heads do not divide hidden_size");
  in.require(!in.flag("is_decoder", false), "is_decoder", "BERT as a decoder is not modelled");
  in.require_positions(options, c.positions);
  if (in.error()) return *in.error();
  return c;
}

// dense, dropout, then the norm of its sum with what went in (BertSelfOutput, BertOutput).
struct Output {
  Linear dense;
  LayerNorm norm;
  double dropout;
  Output(GraphBuilder& g, const Config& c, const std::string& name, int64_t in)
      : dense(g, name + ".dense", in, c.hidden, true),
        norm(g, name + ".LayerNorm", c.hidden),
        dropout(c.hidden_dropout) {}
  Var operator()(GraphBuilder& g, const Var& input, const Var& residual) const {
    Var x = dense(g, input);
    x = g.dropout(x, dropout);
    x = norm(g, g.add(x, residual));
    return x;
  }
};

class Layer {
 public:
  Layer(GraphBuilder& g, const Config& c, const std::string& name)
      : name_(name),
        activation_(c.activation),
        attention_(g,
                   {.hidden = c.hidden,
                    .heads = c.heads,
                    .head_dim = c.hidden / c.heads,
                    .dropout = c.attention_dropout},
                   {"query", "key", "value"}, name + ".attention.self"),
        attention_output_(g, c, name + ".attention.output", c.hidden),
        intermediate_(g, name + ".intermediate.dense", c.hidden, c.inner, true),
        output_(g, c, name + ".output", c.inner) {}

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& input) const {
    RegionScope region(g, RegionKind::layer, name_, {&input});
    const Attended attended = attention(g, options, input);
    Var output = feed_forward(g, attended.output);
    region.leave({&output});
    return output;
  }

 private:
  Attended attention(GraphBuilder& g, const BuildOptions& options, const Var& input) const {
    RegionScope region(g, RegionKind::attention, name_ + ".attention", {&input});
    const int64_t s = options.sequence;
    Attended attended = attention_(g, options, input, s, input, s, {});
    attended.output = attention_output_(g, attended.output, input);
    region.leave({&attended.output});
    return attended;
  }
  Var feed_forward(GraphBuilder& g, const Var& input) const {
    RegionScope region(g, RegionKind::mlp, name_ + ".intermediate", {&input});
    Var x = intermediate_(g, input);
    x = activate(g, activation_, x);
    Var output = output_(g, x, input);
    region.leave({&output});
    return output;
  }

  std::string name_;
  Activation activation_;
  PlainAttention attention_;
  Output attention_output_;
  Linear intermediate_;
  Output output_;
};

class Embeddings {
 public:
  Embeddings(GraphBuilder& g, const Config& c, const std::string& name)
      : words(g.parameter(name + ".word_embeddings.weight", {c.vocabulary, c.hidden},
                          ParameterRole::embedding)),
        places_(g.parameter(name + ".position_embeddings.weight", {c.positions, c.hidden},
                            ParameterRole::embedding)),
        types_(g.parameter(name + ".token_type_embeddings.weight", {c.types, c.hidden},
                           ParameterRole::embedding)),
        norm_(g, name + ".LayerNorm", c.hidden),
        dropout_(c.hidden_dropout),
        position_ids_(g.buffer(name + ".position_ids", {1, c.positions}, DType::i64, false)),
        type_ids_(g.buffer(name + ".token_type_ids", {1, c.positions}, DType::i64, false)) {}

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& ids) const {
    const Var positions = g.slice(position_ids_, 1, 0, options.sequence);
    const Var gathered = g.gather(g.expand(type_ids_, {1, -1}), 1, positions);
    const Var types = g.expand(gathered, {options.batch, options.sequence});
    const Var embedded = g.embedding(words, ids);
    const Var type_embeddings = g.embedding(types_, types);
    Var x = g.add(embedded, type_embeddings);
    const Var place_embeddings = g.embedding(places_, positions);
    x = g.add(x, place_embeddings);
    x = norm_(g, x);
    x = g.dropout(x, dropout_);
    return x;
  }

  Var words;

 private:
  Var places_, types_;
  LayerNorm norm_;
  double dropout_;
  Var position_ids_, type_ids_;
};

// BertLMPredictionHead: one more layer, then the logits.
class Head {
 public:
  Head(GraphBuilder& g, const Config& c, const Var& words)
      : activation_(c.activation),
        bias_(g.parameter(kName + ".bias", {c.vocabulary}, ParameterRole::bias)),
        transform_(g, kName + ".transform.dense", c.hidden, c.hidden, true),
        norm_(g, kName + ".transform.LayerNorm", c.hidden),
        weight_(c.tied ? g.tied(kName + ".decoder.weight", words, ParameterRole::lm_head)
                       : g.parameter(kName + ".decoder.weight", {c.vocabulary, c.hidden},
                                     ParameterRole::lm_head)) {
    decoder_bias_ = c.tied
                        ? g.tied(kName + ".decoder.bias", bias_, ParameterRole::bias)
                        : g.parameter(kName + ".decoder.bias", {c.vocabulary}, ParameterRole::bias);
  }

  Var operator()(GraphBuilder& g, const Var& input) const {
    RegionScope region(g, RegionKind::lm_head, kName, {&input});
    Var x = transform_(g, input);
    x = activate(g, activation_, x);
    x = norm_(g, x);
    x = g.linear(x, weight_, decoder_bias_);
    region.leave({&x});
    return x;
  }

 private:
  inline static const std::string kName = "cls.predictions";
  Activation activation_;
  Var bias_;
  Linear transform_;
  LayerNorm norm_;
  Var weight_, decoder_bias_;
};

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

// What both heads stand on.
class Encoder {
 public:
  Encoder(GraphBuilder& g, const Config& c) : embeddings(g, c, "bert.embeddings") {
    for (int64_t i = 0; i < c.layers; ++i) {
      layers_.emplace_back(g, c, "bert.encoder.layer." + std::to_string(i));
    }
  }
  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& embedded) const {
    Var x = embedded;
    for (const Layer& layer : layers_) x = layer(g, options, x);
    return x;
  }
  const Embeddings embeddings;

 private:
  std::vector<Layer> layers_;
};

void classify(GraphBuilder& g, const Config& c, const BuildOptions& options) {
  const Encoder encoder(g, c);
  const Classifier classifier(g, c, *options.classes);
  const Var ids = g.input("input_ids", {options.batch, options.sequence}, DType::i64);
  const Var labels = labels_input(g, options);
  Var x, pooled;
  {
    const Var embedded = encoder.embeddings(g, options, ids);
    x = encoder(g, options, embedded);
    pooled = classifier.pool(g, x);
  }
  const Var logits = classifier(g, pooled);
  const Var loss = token_loss(g, options, logits, labels, *options.classes);
  g.set_outputs(loss, logits, {});
}

void fill_in(GraphBuilder& g, const Config& c, const BuildOptions& options) {
  const Encoder encoder(g, c);
  const Head head(g, c, encoder.embeddings.words);
  const Var ids = g.input("input_ids", {options.batch, options.sequence}, DType::i64);
  const Var labels = labels_input(g, options);
  Var x;
  {
    const Var embedded = encoder.embeddings(g, options, ids);
    x = encoder(g, options, embedded);
  }
  const Var logits = head(g, x);
  const Var loss = token_loss(g, options, logits, labels, c.vocabulary);
  g.set_outputs(loss, logits, {});
}

}  // namespace

Result<Graph> build_bert(const text::JsonView& json, const BuildOptions& options) {
  HEADROOM_ASSIGN(const Config c, read_config(json, options));
  GraphBuilder g;
  options.classes ? classify(g, c, options) : fill_in(g, c, options);
  return g.finish();
}

}  // namespace headroom::model
