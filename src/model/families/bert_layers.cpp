#include "model/families/bert_layers.h"

#include <utility>
#include <vector>

#include "model/blocks/plain_attention.h"

namespace headroom::model {

BertConfig read_bert_config(ConfigReader& in, const BuildOptions& options) {
  BertConfig c{};
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
  in.require(!in.flag("is_decoder", false), "is_decoder",
             "an encoder as a decoder is not modelled");
  return c;
}

namespace {

// dense, dropout, then the norm of its sum with what went in (BertSelfOutput, BertOutput).
struct Output {
  Linear dense;
  LayerNorm norm;
  double dropout;
  Output(GraphBuilder& g, const BertConfig& c, const std::string& name, int64_t in)
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
  Layer(GraphBuilder& g, const BertConfig& c, const std::string& name)
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

}  // namespace

struct BertLayers::Layers {
  std::vector<Layer> all;
};

BertLayers::BertLayers(GraphBuilder& g, const BertConfig& config, const std::string& name)
    : layers_(std::make_unique<Layers>()) {
  for (int64_t i = 0; i < config.layers; ++i) {
    layers_->all.emplace_back(g, config, name + ".encoder.layer." + std::to_string(i));
  }
}

BertLayers::~BertLayers() = default;

Var BertLayers::operator()(GraphBuilder& g, const BuildOptions& options,
                           const Var& embedded) const {
  Var x = embedded;
  for (const Layer& layer : layers_->all) x = layer(g, options, x);
  return x;
}

Var bert_embeddings(GraphBuilder& g, const BuildOptions& options, const BertTables& tables,
                    const Var& ids, const Var& positions) {
  const Var gathered = g.gather(g.expand(tables.type_ids, {options.batch, -1}), 1, positions);
  const Var types = g.expand(gathered, {options.batch, options.sequence});
  const Var embedded = g.embedding(tables.words, ids);
  const Var type_embeddings = g.embedding(tables.types, types);
  Var x = g.add(embedded, type_embeddings);
  const Var place_embeddings = g.embedding(tables.places, positions);
  x = g.add(x, place_embeddings);
  x = tables.norm(g, x);
  x = g.dropout(x, tables.dropout);
  return x;
}

BertTokenHead::BertTokenHead(GraphBuilder& g, const BertConfig& config, Parts parts,
                             const Var& words)
    : parts_(std::move(parts)),
      bias_(g.parameter(parts_.name + ".bias", {config.vocabulary}, ParameterRole::bias)),
      dense_(g, parts_.name + parts_.dense, config.hidden, config.hidden, true),
      norm_(g, parts_.name + parts_.norm, config.hidden) {
  const std::string weight = parts_.name + ".decoder.weight";
  const std::string bias = parts_.name + ".decoder.bias";
  if (config.tied) {
    weight_ = g.tied(weight, words, ParameterRole::lm_head);
    decoder_bias_ = g.tied(bias, bias_, ParameterRole::bias);
  } else {
    weight_ = g.parameter(weight, {config.vocabulary, config.hidden}, ParameterRole::lm_head);
    decoder_bias_ = g.parameter(bias, {config.vocabulary}, ParameterRole::bias);
  }
}

Var BertTokenHead::operator()(GraphBuilder& g, const Var& hidden) const {
  RegionScope region(g, RegionKind::lm_head, parts_.name, {&hidden});
  Var x = dense_(g, hidden);
  x = activate(g, parts_.activation, x);
  x = norm_(g, x);
  x = g.linear(x, weight_, decoder_bias_);
  region.leave({&x});
  return x;
}

}  // namespace headroom::model
