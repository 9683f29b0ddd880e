#include "model/families/bert_layers.h"

#include <utility>
#include <vector>

#include "model/blocks/plain_attention.h"

namespace headroom::model {

BertConfig read_bert_config(ConfigReader& in, const BuildOptions& options,
                            const BertDefaults& defaults) {
  BertConfig c{};
  c.vocabulary = options.vocabulary.value_or(in.size({"vocab_size"}, defaults.vocabulary));
  c.positions = in.size({"max_position_embeddings"}, 512);
  c.types = in.count("type_vocab_size", defaults.types, defaults.types > 0 ? 1 : 0, kSizeMax);
  c.hidden = in.size({"hidden_size"}, defaults.hidden);
  c.inner = in.size({"intermediate_size"}, defaults.inner);
  c.layers = in.size({"num_hidden_layers"}, defaults.layers, kLayersMax);
  c.heads = in.size({"num_attention_heads"}, defaults.heads, kHeadsMax);
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

BertOutput::BertOutput(GraphBuilder& g, const BertConfig& c, const std::string& name, int64_t in)
    : dense_(g, name + ".dense", in, c.hidden, true),
      norm_(g, name + ".LayerNorm", c.hidden),
      dropout_(c.hidden_dropout) {}

Var BertOutput::operator()(GraphBuilder& g, const Var& input, const Var& residual) const {
  Var x = dense_(g, input);
  x = g.dropout(x, dropout_);
  x = norm_(g, g.add(x, residual));
  return x;
}

BertFeedForward::BertFeedForward(GraphBuilder& g, const BertConfig& c, const std::string& name)
    : name_(name + ".intermediate"),
      activation_(c.activation),
      intermediate_(g, name_ + ".dense", c.hidden, c.inner, true),
      output_(g, c, name + ".output", c.inner) {}

Var BertFeedForward::operator()(GraphBuilder& g, const Var& input) const {
  RegionScope region(g, RegionKind::mlp, name_, {&input});
  Var x = intermediate_(g, input);
  x = activate(g, activation_, x);
  Var output = output_(g, x, input);
  region.leave({&output});
  return output;
}

namespace {

class Layer {
 public:
  Layer(GraphBuilder& g, const BertConfig& c, const std::string& name)
      : name_(name),
        attention_(g,
                   {.hidden = c.hidden,
                    .heads = c.heads,
                    .head_dim = c.hidden / c.heads,
                    .dropout = c.attention_dropout},
                   {"query", "key", "value"}, name + ".attention.self"),
        attention_output_(g, c, name + ".attention.output", c.hidden),
        feed_forward_(g, c, name) {}

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& input) const {
    RegionScope region(g, RegionKind::layer, name_, {&input});
    const Attended attended = attention(g, options, input);
    Var output = feed_forward_(g, attended.output);
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

  std::string name_;
  PlainAttention attention_;
  BertOutput attention_output_;
  BertFeedForward feed_forward_;
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

BertEmbeddings::BertEmbeddings(GraphBuilder& g, const BertConfig& c, int64_t width,
                               const std::string& name)
    : words(g.parameter(name + ".word_embeddings.weight", {c.vocabulary, width},
                        ParameterRole::embedding)),
      places_(g.parameter(name + ".position_embeddings.weight", {c.positions, width},
                          ParameterRole::embedding)),
      types_(g.parameter(name + ".token_type_embeddings.weight", {c.types, width},
                         ParameterRole::embedding)),
      norm_(g, name + ".LayerNorm", width),
      dropout_(c.hidden_dropout),
      position_ids_(g.buffer(name + ".position_ids", {1, c.positions}, DType::i64, false)),
      type_ids_(g.buffer(name + ".token_type_ids", {1, c.positions}, DType::i64, false)) {}

Var BertEmbeddings::operator()(GraphBuilder& g, const BuildOptions& options, const Var& ids) const {
  const Var positions = g.slice(position_ids_, 1, 0, options.sequence);
  return bert_embeddings(g, options, {words, types_, places_, type_ids_, norm_, dropout_}, ids,
                         positions);
}

}  // namespace headroom::model
