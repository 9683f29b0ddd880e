// DistilBERT (transformers' DistilBertForMaskedLM, DistilBertForSequenceClassification): an encoder
// as BERT's, under names of its own, without embeddings of token types and without a dropout
// behind attention.
#include "model/families/distilbert.h"

#include <string>
#include <vector>

#include "model/blocks/mlp.h"
#include "model/blocks/norm.h"
#include "model/blocks/plain_attention.h"
#include "model/builder.h"
#include "model/families/bert_heads.h"
#include "model/families/config.h"

namespace headroom::model {

namespace {

struct Config {
  int64_t vocabulary, positions, hidden, inner, layers, heads;
  double dropout, attention_dropout, classifier_dropout;
  Activation activation;
  bool tied;
};

Result<Config> read_config(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  Config c{};
  c.vocabulary = options.vocabulary.value_or(in.size({"vocab_size"}, 30522));
  c.positions = in.size({"max_position_embeddings"}, 512);
  c.hidden = in.size({"dim", "hidden_size"}, 768);
  c.inner = in.size({"hidden_dim"}, 3072);
  c.layers = in.size({"n_layers", "num_hidden_layers"}, 6, kLayersMax);
  c.heads = in.size({"n_heads", "num_attention_heads"}, 12, kHeadsMax);
  c.dropout = in.dropout("dropout", 0.1, options);
  c.attention_dropout = in.dropout("attention_dropout", 0.1, options);
  c.classifier_dropout = in.dropout("seq_classif_dropout", 0.2, options);
  c.activation = in.activation("activation", Activation::gelu);
  c.tied = in.flag("tie_word_embeddings", true);
  in.require(c.hidden % c.heads == 0, "n_heads", "the heads do not divide dim");
  in.require_positions(options, c.positions);
  if (in.error()) return *in.error();
  return c;
}

class Embeddings {
 public:
  Embeddings(GraphBuilder& g, const Config& c, const std::string& name)
      : words(g.parameter(name + ".word_embeddings.weight", {c.vocabulary, c.hidden},
                          ParameterRole::embedding)),
        places_(g.parameter(name + ".position_embeddings.weight", {c.positions, c.hidden},
                            ParameterRole::embedding)),
        norm_(g, name + ".LayerNorm", c.hidden),
        dropout_(c.dropout),
        position_ids_(g.buffer(name + ".position_ids", {1, c.positions}, DType::i64, false)) {}

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& ids) const {
    const Var embedded = g.embedding(words, ids);
    const Var positions = g.slice(position_ids_, 1, 0, options.sequence);
    const Var place_embeddings = g.embedding(places_, positions);
    Var x = g.add(embedded, place_embeddings);
    x = norm_(g, x);
    x = g.dropout(x, dropout_);
    return x;
  }

  Var words;

 private:
  Var places_;
  LayerNorm norm_;
  double dropout_;
  Var position_ids_;
};

class Layer {
 public:
  Layer(GraphBuilder& g, const Config& c, const std::string& name)
      : name_(name),
        attention_(g,
                   {.hidden = c.hidden,
                    .heads = c.heads,
                    .head_dim = c.hidden / c.heads,
                    .dropout = c.attention_dropout},
                   {"q_lin", "k_lin", "v_lin", "out_lin"}, name + ".attention"),
        attention_norm_(g, name + ".sa_layer_norm", c.hidden),
        mlp_{Linear(g, name + ".ffn.lin1", c.hidden, c.inner, true),
             Linear(g, name + ".ffn.lin2", c.inner, c.hidden, true), c.activation, c.dropout},
        output_norm_(g, name + ".output_layer_norm", c.hidden) {}

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& input) const {
    RegionScope region(g, RegionKind::layer, name_, {&input});
    Attended attended = attention(g, options, input);
    attended.output = attention_norm_(g, g.add(attended.output, input));
    Var output = feed_forward(g, options, attended.output);
    output = output_norm_(g, g.add(output, attended.output));
    region.leave({&output});
    return output;
  }

 private:
  Attended attention(GraphBuilder& g, const BuildOptions& options, const Var& input) const {
    RegionScope region(g, RegionKind::attention, name_ + ".attention", {&input});
    const int64_t s = options.sequence;
    Attended attended = attention_(g, options, input, s, input, s, {});
    region.leave({&attended.output});
    return attended;
  }
  Var feed_forward(GraphBuilder& g, const BuildOptions& options, const Var& input) const {
    RegionScope region(g, RegionKind::mlp, name_ + ".ffn", {&input});
    Var output = mlp_(g, options, input);
    region.leave({&output});
    return output;
  }

  std::string name_;
  PlainAttention attention_;
  LayerNorm attention_norm_;
  Mlp<Linear> mlp_;
  LayerNorm output_norm_;
};

class Encoder {
 public:
  Encoder(GraphBuilder& g, const Config& c) : embeddings_(g, c, "distilbert.embeddings") {
    for (int64_t i = 0; i < c.layers; ++i) {
      layers_.emplace_back(g, c, "distilbert.transformer.layer." + std::to_string(i));
    }
  }
  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& ids) const {
    const Var embedded = embeddings_(g, options, ids);
    Var x = embedded;
    for (const Layer& layer : layers_) x = layer(g, options, x);
    return x;
  }
  [[nodiscard]] const Var& words() const { return embeddings_.words; }

 private:
  Embeddings embeddings_;
  std::vector<Layer> layers_;
};

TokenHead token_head(GraphBuilder& g, const Config& c, const Var& words) {
  TokenHead head{.name = "vocab_projector", .activation = c.activation};
  head.dense = Linear(g, "vocab_transform", c.hidden, c.hidden, true);
  head.norm = LayerNorm(g, "vocab_layer_norm", c.hidden);
  head.weight = token_weight(g, head.name + ".weight", {c.vocabulary, c.hidden}, c.tied, words);
  head.bias = g.parameter(head.name + ".bias", {c.vocabulary}, ParameterRole::bias);
  return head;
}

class Classifier {
 public:
  Classifier(GraphBuilder& g, const Config& c, int64_t classes)
      : dense_(g, "pre_classifier", c.hidden, c.hidden, true),
        weight_(g.parameter(kName + ".weight", {classes, c.hidden}, ParameterRole::lm_head)),
        bias_(g.parameter(kName + ".bias", {classes}, ParameterRole::bias)),
        dropout_(c.classifier_dropout) {}

  Var pool(GraphBuilder& g, const Var& hidden) const {
    Var x = g.select(hidden, 1, 0);
    x = dense_(g, x);
    x = g.relu(x);
    return g.dropout(x, dropout_);
  }
  Var operator()(GraphBuilder& g, const Var& pooled) const {
    RegionScope region(g, RegionKind::lm_head, kName, {&pooled});
    Var logits = g.linear(pooled, weight_, bias_);
    region.leave({&logits});
    return logits;
  }

 private:
  inline static const std::string kName = "classifier";
  Linear dense_;
  Var weight_, bias_;
  double dropout_;
};

void classify(GraphBuilder& g, const Config& c, const BuildOptions& options) {
  const Encoder encoder(g, c);
  const Classifier classifier(g, c, *options.classes);
  Var pooled;  // a variable of the model's forward function, which outlives the loss
  const auto head = [&](GraphBuilder& in, const Var& hidden) {
    pooled = classifier.pool(in, hidden);
    return classifier(in, pooled);
  };
  run_encoder(g, options, *options.classes, encoder, head);
}

void fill_in(GraphBuilder& g, const Config& c, const BuildOptions& options) {
  const Encoder encoder(g, c);
  run_encoder(g, options, c.vocabulary, encoder, token_head(g, c, encoder.words()));
}

}  // namespace

Result<Graph> build_distilbert(const text::JsonView& json, const BuildOptions& options) {
  HEADROOM_ASSIGN(const Config c, read_config(json, options));
  GraphBuilder g;
  options.classes ? classify(g, c, options) : fill_in(g, c, options);
  return g.finish();
}

}  // namespace headroom::model
