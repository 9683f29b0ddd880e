// DeBERTa-v2 and -v3 (transformers' DebertaV2ForMaskedLM, DebertaV2ForSequenceClassification):
// BERT's layers with attention of their own, and a padding mask that the model makes where none is
// passed, multiplies embeddings by, and spreads over all pairs of tokens.
#include "model/families/deberta_v2.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/blocks/linear.h"
#include "model/blocks/mask.h"
#include "model/blocks/norm.h"
#include "model/builder.h"
#include "model/families/bert_heads.h"
#include "model/families/bert_layers.h"
#include "model/families/config.h"
#include "model/families/deberta_attention.h"

namespace headroom::model {

namespace {

struct Config {
  BertConfig bert;
  DebertaAttentionShape attention;
  double pooler_dropout;
  Activation pooler_activation;
  bool adds_positions;   // to the embeddings of words
  bool norms_distances;  // embeddings of distances have a norm
  bool looks_for_padding;
};

constexpr int64_t kSpanMax = 1 << 20;

// Names separated by bars: whether `name` is one.
bool lists(const std::string& names, const std::string& name) {
  std::string text = "|" + names + "|";
  std::erase(text, ' ');
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text.find("|" + name + "|") != std::string::npos;
}

// "pos_att_type", which is such names or an array of them.
std::string read_kinds(ConfigReader& in, const text::JsonView& json) {
  const char* key = "pos_att_type";
  const text::Json* found = json.json().find(key);
  std::string names;
  if (found == nullptr || !found->is_array()) {
    const auto text = json.optional_string(key);
    in.require(text.has_value(), key, "expected names of kinds of scores");
    return text ? text->value_or("") : names;
  }
  constexpr size_t kKindsMax = 8;
  const auto items = json.optional_array(key, kKindsMax);
  in.require(items.has_value(), key, "expected a few names of kinds of scores");
  if (!items) return names;
  for (const text::JsonView& item : **items) {
    const auto name = item.to_string();
    in.require(name.has_value(), key, "expected names of kinds of scores");
    if (name) names += "|" + *name;
  }
  return names;
}

DebertaAttentionShape read_attention(ConfigReader& in, const text::JsonView& json,
                                     const BertConfig& bert) {
  DebertaAttentionShape shape{.hidden = bert.hidden, .heads = bert.heads};
  shape.relative = in.flag("relative_attention", false);
  const std::string kinds = read_kinds(in, json);
  shape.from_query = lists(kinds, "c2p");
  shape.from_key = lists(kinds, "p2c");
  shape.shares_projections = in.flag("share_att_key", false);
  shape.dropout = bert.attention_dropout;
  shape.distance_dropout = bert.hidden_dropout;
  const int64_t buckets = in.count("position_buckets", -1, -1, kSpanMax);
  const int64_t distances = in.count("max_relative_positions", -1, -1, kSpanMax);
  shape.buckets = buckets > 0;
  shape.span = shape.buckets ? buckets : distances > 0 ? distances : bert.positions;
  in.require(!shape.relative || shape.from_query || shape.from_key, "pos_att_type",
             "neither c2p nor p2c, and distances count");
  in.require(shape.span <= kSpanMax, "max_position_embeddings", "more than 2^20 distances");
  return shape;
}

// What has a size of its own in some checkpoints, and is taken to be hidden_size.
void require_one_width(ConfigReader& in, const BertConfig& bert) {
  for (const char* key : {"embedding_size", "pooler_hidden_size"}) {
    in.require(in.size({key}, bert.hidden) == bert.hidden, key,
               "another size than hidden_size is not modelled");
  }
  const int64_t head_dim = bert.hidden / bert.heads;
  in.require(in.size({"attention_head_size"}, head_dim) == head_dim, "attention_head_size",
             "heads do not make up hidden_size");
}

Result<Config> read_config(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  Config c{};
  c.bert = read_bert_config(
      in, options,
      {.vocabulary = 128100, .hidden = 1536, .inner = 6144, .layers = 24, .heads = 24, .types = 0});
  c.bert.classifier_dropout = in.dropout("cls_dropout", c.bert.hidden_dropout, options);
  c.attention = read_attention(in, json, c.bert);
  require_one_width(in, c.bert);
  c.pooler_dropout = in.dropout("pooler_dropout", 0, options);
  c.pooler_activation = in.activation("pooler_hidden_act", Activation::gelu);
  c.adds_positions = in.flag("position_biased_input", true);
  const auto norm = json.optional_string("norm_rel_ebd");
  in.require(norm.has_value(), "norm_rel_ebd", "expected none or layer_norm");
  const text::Json* padding = json.json().find("pad_token_id");
  c.looks_for_padding = padding == nullptr || !padding->is_null();
  c.norms_distances = norm && lists(norm->value_or("none"), "layer_norm");
  in.require(in.count("conv_kernel_size", 0, 0, kSizeMax) == 0, "conv_kernel_size",
             "the convolution behind the first layer is not modelled");
  in.require(in.flag("legacy", true), "legacy", "the head of legacy = false is not modelled");
  if (c.adds_positions) in.require_positions(options, c.bert.positions);
  if (in.error()) return *in.error();
  return c;
}

class Embeddings {
 public:
  Embeddings(GraphBuilder& g, const Config& c, const std::string& name)
      : words(g.parameter(name + ".word_embeddings.weight", {c.bert.vocabulary, c.bert.hidden},
                          ParameterRole::embedding)),
        dropout_(c.bert.hidden_dropout) {
    const BertConfig& b = c.bert;
    if (c.adds_positions) places_ = table(g, name + ".position_embeddings", b.positions, b.hidden);
    if (b.types > 0) types_ = table(g, name + ".token_type_embeddings", b.types, b.hidden);
    norm_ = LayerNorm(g, name + ".LayerNorm", b.hidden);
    position_ids_ = g.buffer(name + ".position_ids", {1, b.positions}, DType::i64, false);
  }

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& ids, const Var& types,
                 const Var& padding) const {
    const Var embedded = g.embedding(words, ids);
    // Zeros are made where no positions are added.
    const Var place_embeddings =
        places_ ? g.embedding(places_, g.slice(position_ids_, 1, 0, options.sequence))
                : g.zeros_like(embedded);
    Var x = embedded;
    Var type_embeddings;
    if (places_) x = g.add(x, place_embeddings);
    if (types_) {
      type_embeddings = g.embedding(types_, types);
      x = g.add(x, type_embeddings);
    }
    x = norm_(g, x);
    const Var mask = g.to_like(g.unsqueeze(padding, 2), x);
    x = g.mul(x, mask);
    x = g.dropout(x, dropout_);
    return x;
  }

  Var words;

 private:
  static Var table(GraphBuilder& g, const std::string& name, int64_t rows, int64_t width) {
    return g.parameter(name + ".weight", {rows, width}, ParameterRole::embedding);
  }
  Var places_, types_;  // empty where there are none
  LayerNorm norm_;
  double dropout_;
  Var position_ids_;
};

class Layer {
 public:
  Layer(GraphBuilder& g, const Config& c, const std::string& name)
      : name_(name),
        attention_(g, c.attention, name + ".attention.self"),
        attention_output_(g, c.bert, name + ".attention.output", c.bert.hidden),
        feed_forward_(g, c.bert, name) {}

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& input,
                 const DebertaShared& shared) const {
    RegionScope region(g, RegionKind::layer, name_,
                       {&input, &shared.mask, &shared.distances, &shared.embeddings});
    region.set_positional(2);
    const Var attended = attention(g, options, input, shared);
    Var output = feed_forward_(g, attended);
    region.leave({&output});
    return output;
  }

 private:
  Var attention(GraphBuilder& g, const BuildOptions& options, const Var& input,
                const DebertaShared& shared) const {
    RegionScope region(g, RegionKind::attention, name_ + ".attention", {&input});
    const Var context = attention_(g, options, input, shared);
    Var output = attention_output_(g, context, input);
    region.leave({&output});
    return output;
  }

  std::string name_;
  DebertaAttention attention_;
  BertOutput attention_output_;
  BertFeedForward feed_forward_;
};

class Encoder {
 public:
  Encoder(GraphBuilder& g, const Config& c)
      : attention_(c.attention),
        looks_for_padding_(c.looks_for_padding),
        embeddings_(g, c, "deberta.embeddings") {
    for (int64_t i = 0; i < c.bert.layers; ++i) {
      layers_.emplace_back(g, c, "deberta.encoder.layer." + std::to_string(i));
    }
    const std::string name = "deberta.encoder";
    if (attention_.relative) {
      distances_ = g.parameter(name + ".rel_embeddings.weight",
                               {2 * attention_.span, c.bert.hidden}, ParameterRole::embedding);
    }
    if (c.norms_distances) norm_.emplace(g, name + ".LayerNorm", c.bert.hidden);
  }

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& ids) const {
    if (looks_for_padding_) look_for_padding(g, options, ids);
    const Var padding = g.full({options.batch, options.sequence}, DType::f32);
    const Var types = g.full({options.batch, options.sequence}, DType::i64);
    const Var embedded = embeddings_(g, options, ids, types, padding);
    const std::vector<Var> states = encode(g, options, embedded, padding);
    return states.back();
  }
  [[nodiscard]] const Var& words() const { return embeddings_.words; }

 private:
  // Every layer's states are held until the last are chosen.
  [[nodiscard]] std::vector<Var> encode(GraphBuilder& g, const BuildOptions& options,
                                        const Var& embedded, const Var& padding) const {
    DebertaShared shared;
    {
      const Var keys = g.unsqueeze(g.unsqueeze(padding, 1), 2);
      shared.mask = g.mul(keys, g.unsqueeze(g.squeeze(keys, -2), -1));
    }
    if (attention_.relative) {
      shared.distances = deberta_distances(g, options.sequence, attention_.buckets);
      shared.embeddings = norm_ ? (*norm_)(g, distances_) : distances_;
    }
    std::vector<Var> states{embedded};
    for (const Layer& layer : layers_) states.push_back(layer(g, options, states.back(), shared));
    return states;
  }

  DebertaAttentionShape attention_;
  bool looks_for_padding_;
  Embeddings embeddings_;
  std::vector<Layer> layers_;
  Var distances_;
  std::optional<LayerNorm> norm_;
};

// ContextPooler and the classifier on it.
class Classifier {
 public:
  Classifier(GraphBuilder& g, const Config& c, int64_t classes)
      : dense_(g, "pooler.dense", c.bert.hidden, c.bert.hidden, true),
        weight_(g.parameter(kName + ".weight", {classes, c.bert.hidden}, ParameterRole::lm_head)),
        bias_(g.parameter(kName + ".bias", {classes}, ParameterRole::bias)),
        activation_(c.pooler_activation),
        pooler_dropout_(c.pooler_dropout),
        dropout_(c.bert.classifier_dropout) {}

  Var pool(GraphBuilder& g, const Var& hidden) const {
    const Var first = g.select(hidden, 1, 0);
    const Var token = g.dropout(first, pooler_dropout_);
    Var x = dense_(g, token);
    x = activate(g, activation_, x);
    return x;
  }
  Var operator()(GraphBuilder& g, const Var& pooled) const {
    RegionScope region(g, RegionKind::lm_head, kName, {&pooled});
    Var logits = g.linear(pooled, weight_, bias_);
    region.leave({&logits});
    return logits;
  }
  [[nodiscard]] double dropout() const { return dropout_; }

 private:
  inline static const std::string kName = "classifier";
  Linear dense_;
  Var weight_, bias_;
  Activation activation_;
  double pooler_dropout_, dropout_;
};

// Of the sequences that have a label, which all are taken to.
Var labelled_loss(GraphBuilder& g, const BuildOptions& options, const Var& logits,
                  const Var& labels_in, int64_t classes) {
  if (!options.labels) return {};
  RegionScope region(g, RegionKind::loss, "loss", {&logits, &labels_in});
  const Var labelled = g.nonzero(g.compare(labels_in), options.batch);
  const Var rows = g.gather(logits, 0, g.expand(labelled, {options.batch, classes}));
  const Var labels = g.gather(labels_in, 0, g.view(labelled, {-1}));
  Var wide = g.to(g.view(rows, {-1, classes}), DType::f32);
  Var loss = g.cross_entropy(std::move(wide), g.view(labels, {-1}));
  region.leave({&loss});
  return loss;
}

void classify(GraphBuilder& g, const Config& c, const BuildOptions& options) {
  const Encoder encoder(g, c);
  const Classifier classifier(g, c, *options.classes);
  Var pooled;  // a variable of the model's forward function, which outlives the loss
  const auto head = [&](GraphBuilder& in, const Var& hidden) {
    pooled = classifier.pool(in, hidden);
    pooled = in.dropout(pooled, classifier.dropout());
    return classifier(in, pooled);
  };
  run_encoder(g, options, *options.classes, encoder, head, labelled_loss);
}

void fill_in(GraphBuilder& g, const Config& c, const BuildOptions& options) {
  const Encoder encoder(g, c);
  const TokenHead head =
      bert_token_head(g, c.bert, {"cls.predictions", ".transform.dense", ".transform.LayerNorm"},
                      c.bert.activation, encoder.words());
  run_encoder(g, options, c.bert.vocabulary, encoder, head);
}

}  // namespace

Result<Graph> build_deberta_v2(const text::JsonView& json, const BuildOptions& options) {
  HEADROOM_ASSIGN(const Config c, read_config(json, options));
  GraphBuilder g;
  options.classes ? classify(g, c, options) : fill_in(g, c, options);
  return g.finish();
}

}  // namespace headroom::model
