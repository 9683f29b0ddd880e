// MPNet (transformers' MPNetForMaskedLM, MPNetForSequenceClassification): BERT's layers with
// RoBERTa's positions and, for all layers, a bias on the scores by buckets of distances. It is
// written without SDPA, and its layers cannot be checkpointed.
#include "model/families/mpnet.h"

#include <string>
#include <utility>
#include <vector>

#include "model/blocks/linear.h"
#include "model/blocks/norm.h"
#include "model/builder.h"
#include "model/families/bert_heads.h"
#include "model/families/bert_layers.h"
#include "model/families/config.h"

namespace headroom::model {

namespace {

struct Config {
  BertConfig bert;
  int64_t buckets;
};

Result<Config> read_config(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  Config c{};
  c.bert = read_bert_config(in, options, {.vocabulary = 30527});
  c.bert.classifier_dropout = c.bert.hidden_dropout;
  c.buckets = in.size({"relative_attention_num_buckets"}, 32);
  constexpr int64_t kPadding = 1;  // whatever the config says
  in.require_positions(options, c.bert.positions - kPadding - 1);
  if (in.error()) return *in.error();
  if (options.checkpointing) {
    return Error{ErrorCode::usage, "transformers has no checkpointing for mpnet", "--checkpointing",
                 "take --checkpointing none"};
  }
  return c;
}

class Embeddings {
 public:
  Embeddings(GraphBuilder& g, const BertConfig& c, const std::string& name)
      : words(g.parameter(name + ".word_embeddings.weight", {c.vocabulary, c.hidden},
                          ParameterRole::embedding)),
        places_(g.parameter(name + ".position_embeddings.weight", {c.positions, c.hidden},
                            ParameterRole::embedding)),
        norm_(g, name + ".LayerNorm", c.hidden),
        dropout_(c.hidden_dropout) {
    g.buffer(name + ".position_ids", {1, c.positions}, DType::i64, false);
  }

  Var operator()(GraphBuilder& g, const Var& ids) const {
    const Var positions = positions_of(g, ids);
    const Var embedded = g.embedding(words, ids);
    const Var place_embeddings = g.embedding(places_, positions);
    Var x = g.add(embedded, place_embeddings);
    x = norm_(g, x);
    x = g.dropout(x, dropout_);
    return x;
  }

  Var words;

 private:
  static Var positions_of(GraphBuilder& g, const Var& ids) {
    const Var is_token = g.to(g.compare(ids), DType::i32);
    const Var places = g.mul(g.to(g.cumsum(is_token, 1), DType::i32), is_token);
    return g.add(g.to(places, DType::i64), 1.0);
  }

  Var places_;
  LayerNorm norm_;
  double dropout_;
};

// relative_position_bucket; integers times a number are sums, so that none becomes a float.
Var buckets_of(GraphBuilder& g, const Var& relative) {
  Var distance = g.neg(relative);
  Var buckets = g.add(g.to(g.compare(distance), DType::i64), 0.0);
  buckets = g.add(std::move(buckets), 0.0);  // the first is added to the number 0
  distance = g.neg(distance);                // the absolute value
  const Var is_small = g.compare(distance);
  Var large =
      g.to(g.mul(g.div(g.log(g.div(g.to(distance, DType::f32), 8.0)), 2.0), 8.0), DType::i64);
  large = g.add(std::move(large), 8.0);
  large = g.add(large, g.zeros_like(large));  // the smaller of both
  return g.add_assign(buckets, g.where(is_small, distance, large));
}

class Attention {
 public:
  Attention(GraphBuilder& g, const BertConfig& c, const std::string& name)
      : heads_(c.heads),
        head_dim_(c.hidden / c.heads),
        attention_dropout_(c.attention_dropout),
        dropout_(c.hidden_dropout),
        query_(g, name + ".attn.q", c.hidden, c.hidden, true),
        key_(g, name + ".attn.k", c.hidden, c.hidden, true),
        value_(g, name + ".attn.v", c.hidden, c.hidden, true),
        output_(g, name + ".attn.o", c.hidden, c.hidden, true),
        norm_(g, name + ".LayerNorm", c.hidden) {}

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                 const Var& bias) const {
    const Var attended = attend(g, options, x, bias);
    Var sum = g.add(g.dropout(attended, dropout_), x);
    return norm_(g, sum);
  }

 private:
  Var attend(GraphBuilder& g, const BuildOptions& options, const Var& x, const Var& bias) const {
    const int64_t b = options.batch;
    const int64_t s = options.sequence;
    const auto heads = [&](Var projected) {
      return g.transpose(g.view(std::move(projected), {b, s, -1, head_dim_}), 1, 2);
    };
    const Var query = heads(query_(g, x));
    const Var key = heads(key_(g, x));
    const Var value = heads(value_(g, x));
    Var scores = g.matmul(query, g.transpose(key, -1, -2));
    scores = g.div(scores, 1.0);
    scores = g.add_assign(scores, bias);
    Var weights = g.softmax(scores, -1);
    weights = g.dropout(weights, attention_dropout_);
    Var context = g.matmul(weights, value);
    context = g.contiguous(g.permute(context, {0, 2, 1, 3}));
    context = g.view(context, {b, s, heads_ * head_dim_});
    return output_(g, context);
  }

  int64_t heads_, head_dim_;
  double attention_dropout_, dropout_;
  Linear query_, key_, value_, output_;
  LayerNorm norm_;
};

class Layer {
 public:
  Layer(GraphBuilder& g, const BertConfig& c, const std::string& name)
      : name_(name), attention_(g, c, name + ".attention"), feed_forward_(g, c, name) {}

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& input,
                 const Var& bias) const {
    RegionScope region(g, RegionKind::layer, name_, {&input, &bias});
    region.set_positional(2);
    const Var attended = attention(g, options, input, bias);
    Var output = feed_forward_(g, attended);
    region.leave({&output});
    return output;
  }

 private:
  Var attention(GraphBuilder& g, const BuildOptions& options, const Var& input,
                const Var& bias) const {
    RegionScope region(g, RegionKind::attention, name_ + ".attention", {&input});
    Var output = attention_(g, options, input, bias);
    region.leave({&output});
    return output;
  }

  std::string name_;
  Attention attention_;
  BertFeedForward feed_forward_;
};

class Encoder {
 public:
  Encoder(GraphBuilder& g, const Config& c) : embeddings_(g, c.bert, "mpnet.embeddings") {
    for (int64_t i = 0; i < c.bert.layers; ++i) {
      layers_.emplace_back(g, c.bert, "mpnet.encoder.layer." + std::to_string(i));
    }
    bias_ = g.parameter("mpnet.encoder.relative_attention_bias.weight", {c.buckets, c.bert.heads},
                        ParameterRole::embedding);
  }

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& ids) const {
    const Var embedded = embeddings_(g, ids);
    return encode(g, options, embedded);
  }
  [[nodiscard]] const Var& words() const { return embeddings_.words; }

 private:
  [[nodiscard]] Var encode(GraphBuilder& g, const BuildOptions& options,
                           const Var& embedded) const {
    const Var bias = make_bias(g, options);
    Var x = embedded;
    for (const Layer& layer : layers_) x = layer(g, options, x, bias);
    return x;
  }
  // compute_position_bias
  [[nodiscard]] Var make_bias(GraphBuilder& g, const BuildOptions& options) const {
    const int64_t s = options.sequence;
    const Var context = g.unsqueeze(g.arange(s), 1);
    const Var memory = g.unsqueeze(g.arange(s), 0);
    const Var relative = g.sub(memory, context);
    const Var buckets = buckets_of(g, relative);
    Var values = g.embedding(bias_, buckets);
    values = g.unsqueeze(g.permute(values, {2, 0, 1}), 0);
    values = g.contiguous(g.expand(values, {options.batch, -1, s, s}));
    return values;
  }

  Embeddings embeddings_;
  std::vector<Layer> layers_;
  Var bias_;
};

void classify(GraphBuilder& g, const Config& c, const BuildOptions& options) {
  const Encoder encoder(g, c);
  const FirstTokenClassifier head(g, c.bert, *options.classes, Activation::tanh);
  run_encoder(g, options, *options.classes, encoder, head);
}

void fill_in(GraphBuilder& g, const Config& c, const BuildOptions& options) {
  const Encoder encoder(g, c);
  const TokenHead head = bert_token_head(g, c.bert, {"lm_head", ".dense", ".layer_norm"},
                                         Activation::gelu, encoder.words());
  run_encoder(g, options, c.bert.vocabulary, encoder, head);
}

}  // namespace

Result<Graph> build_mpnet(const text::JsonView& json, const BuildOptions& options) {
  HEADROOM_ASSIGN(const Config c, read_config(json, options));
  GraphBuilder g;
  options.classes ? classify(g, c, options) : fill_in(g, c, options);
  return g.finish();
}

}  // namespace headroom::model
