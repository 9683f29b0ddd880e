// ModernBERT (transformers' ModernBertForMaskedLM, ModernBertForSequenceClassification): an encoder
// with rotary positions, norms before each part, gated feed-forward layers and, in most layers,
// attention that looks a window to either side.
#include "model/families/modernbert.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "model/blocks/attention.h"
#include "model/blocks/linear.h"
#include "model/blocks/mask.h"
#include "model/blocks/norm.h"
#include "model/blocks/rotary.h"
#include "model/builder.h"
#include "model/families/bert_heads.h"
#include "model/families/config.h"
#include "model/families/decoder_config.h"

namespace headroom::model {

namespace {

struct Config {
  int64_t vocabulary, hidden, inner, layers, heads, window;
  double embedding_dropout, attention_dropout, mlp_dropout, classifier_dropout;
  Activation activation, classifier_activation;
  bool norm_bias, attention_bias, mlp_bias, decoder_bias, classifier_bias, tied;
  bool pools_mean;  // all tokens' mean is classified, else the first one's state
  std::vector<LayerMask> mask_of_layer;

  [[nodiscard]] int64_t head_dim() const { return hidden / heads; }
};

// The half of local_attention, which is the whole window.
int64_t read_window(ConfigReader& in) {
  constexpr int64_t kLocal = 128;
  return in.size({"local_attention"}, kLocal, kWindowMax) / 2;
}

void read_switches(ConfigReader& in, const text::JsonView& json, Config& c) {
  c.norm_bias = in.flag("norm_bias", false);
  c.attention_bias = in.flag("attention_bias", false);
  c.mlp_bias = in.flag("mlp_bias", false);
  c.decoder_bias = in.flag("decoder_bias", true);
  c.classifier_bias = in.flag("classifier_bias", false);
  c.tied = in.flag("tie_word_embeddings", true);
  const auto pooling = json.optional_string("classifier_pooling");
  const std::string kind = pooling ? pooling->value_or("cls") : "";
  c.pools_mean = kind == "mean";
  in.require(c.pools_mean || kind == "cls", "classifier_pooling", "expected cls or mean");
  in.require(!in.flag("sparse_prediction", false), "sparse_prediction",
             "logits of the masked tokens alone are not modelled");
}

Result<Config> read_config(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  Config c{};
  c.vocabulary = options.vocabulary.value_or(in.size({"vocab_size"}, 50368));
  c.hidden = in.size({"hidden_size"}, 768);
  c.inner = in.size({"intermediate_size"}, 1152);
  c.layers = in.size({"num_hidden_layers"}, 22, kLayersMax);
  c.heads = in.size({"num_attention_heads"}, 12, kHeadsMax);
  c.window = read_window(in);
  c.embedding_dropout = in.dropout("embedding_dropout", 0, options);
  c.attention_dropout = in.dropout("attention_dropout", 0, options);
  c.mlp_dropout = in.dropout("mlp_dropout", 0, options);
  c.classifier_dropout = in.dropout("classifier_dropout", 0, options);
  c.activation = in.activation("hidden_activation", Activation::gelu);
  c.classifier_activation = in.activation("classifier_activation", Activation::gelu);
  read_switches(in, json, c);
  const int64_t every = in.size({"global_attn_every_n_layers"}, 3);
  DecoderSpec spec;
  spec.layers = c.layers;
  read_layer_masks(in, json, spec, [&](int64_t layer) { return layer % every != 0; });
  c.mask_of_layer = spec.mask_of_layer;
  in.require(c.hidden % c.heads == 0, "num_attention_heads", "the heads do not divide hidden_size");
  in.require(c.head_dim() % 2 == 0, "num_attention_heads", "a head's size is not even");
  if (in.error()) return *in.error();
  return c;
}

// Tables and mask of a kind of layer.
struct Shared {
  Var cos, sin, mask;
};

// Each factor is widened to float32 by itself, and the sum narrowed when both are made.
std::pair<Var, Var> rotate(GraphBuilder& g, const Var& query, const Var& key, const Shared& shared,
                           int64_t dims) {
  const Var cos = g.unsqueeze(shared.cos, 1);
  const Var sin = g.unsqueeze(shared.sin, 1);
  const auto half_turned = [&](const Var& narrow) {
    const Var x = g.to(narrow, DType::f32);
    const Var first = g.slice(x, -1, 0, dims / 2);
    const Var second = g.slice(x, -1, dims / 2, dims);
    const std::array<Var, 2> parts{g.neg(second), first};
    return g.cat(parts, -1);
  };
  const auto turned = [&](const Var& x) {
    Var straight = g.mul(g.to(x, DType::f32), cos);
    return g.add(std::move(straight), g.mul(half_turned(x), sin));
  };
  const Var wide_query = turned(query);
  const Var wide_key = turned(key);
  Var narrowed = g.to_like(wide_query, query);
  return {narrowed, g.to_like(wide_key, key)};
}

class Attention {
 public:
  Attention(GraphBuilder& g, const Config& c, const std::string& name)
      : c_(c),
        qkv_(g, name + ".Wqkv", c.hidden, 3 * c.hidden, c.attention_bias),
        out_(g, name + ".Wo", c.hidden, c.hidden, c.attention_bias) {}

  Attended operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                      const Shared& shared) const {
    const int64_t s = options.sequence;
    const int64_t dims = c_.head_dim();
    Var qkv = qkv_(g, x);
    qkv = g.view(qkv, {options.batch, s, 3, -1, dims});
    // unbind: it stacks the three gradients at once, as a split joins its parts'.
    std::vector<Var> states = g.split(qkv, {1, 1, 1}, -3);
    for (Var& state : states) state = g.transpose(g.squeeze(state, -3), 1, 2);
    std::tie(states[0], states[1]) = rotate(g, states[0], states[1], shared, dims);
    const AttentionShape shape{options.batch,        s,    c_.heads, c_.heads, dims,
                               c_.attention_dropout, false};
    Attended attended = attend(g, options, shape, states[0], states[1], states[2], shared.mask);
    attended.output = g.contiguous(g.reshape(attended.output, {options.batch, s, -1}));
    attended.output = g.dropout(out_(g, attended.output), c_.attention_dropout);
    return attended;
  }

 private:
  const Config& c_;
  Linear qkv_, out_;
};

class FeedForward {
 public:
  FeedForward(GraphBuilder& g, const Config& c, const std::string& name)
      : c_(c),
        in_(g, name + ".Wi", c.hidden, 2 * c.inner, c.mlp_bias),
        out_(g, name + ".Wo", c.inner, c.hidden, c.mlp_bias) {}

  Var operator()(GraphBuilder& g, const Var& x) const {
    const std::vector<Var> halves = g.split(in_(g, x), {c_.inner, c_.inner}, -1);
    Var product = g.mul(activate(g, c_.activation, halves[0]), halves[1]);
    product = g.dropout(product, c_.mlp_dropout);
    return out_(g, product);
  }

 private:
  const Config& c_;
  Linear in_, out_;
};

class Layer {
 public:
  Layer(GraphBuilder& g, const Config& c, const std::string& name, bool is_first)
      : name_(name),
        attention_norm_(first_norm(g, c, name, is_first)),
        attention_(g, c, name + ".attn"),
        mlp_norm_(g, name + ".mlp_norm", c.hidden, c.norm_bias),
        mlp_(g, c, name + ".mlp") {}

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& input,
                 const Shared& shared) const {
    RegionScope region(g, RegionKind::layer, name_,
                       {&input, &shared.mask, &shared.cos, &shared.sin});
    const Attended attended = attention(g, options, input, shared);
    Var x = g.add(input, attended.output);
    x = g.add(x, feed_forward(g, x));
    region.leave({&x});
    return x;
  }

 private:
  // The embeddings are normed already.
  static std::optional<LayerNorm> first_norm(GraphBuilder& g, const Config& c,
                                             const std::string& name, bool is_first) {
    if (is_first) return {};
    return LayerNorm(g, name + ".attn_norm", c.hidden, c.norm_bias);
  }
  Attended attention(GraphBuilder& g, const BuildOptions& options, const Var& input,
                     const Shared& shared) const {
    const Var normed = attention_norm_ ? (*attention_norm_)(g, input) : input;
    RegionScope region(g, RegionKind::attention, name_ + ".attn", {&normed});
    Attended attended = attention_(g, options, normed, shared);
    region.leave({&attended.output});
    return attended;
  }
  Var feed_forward(GraphBuilder& g, const Var& input) const {
    const Var normed = mlp_norm_(g, input);
    RegionScope region(g, RegionKind::mlp, name_ + ".mlp", {&normed});
    Var output = mlp_(g, normed);
    region.leave({&output});
    return output;
  }

  std::string name_;
  std::optional<LayerNorm> attention_norm_;
  Attention attention_;
  LayerNorm mlp_norm_;
  FeedForward mlp_;
};

class Encoder {
 public:
  Encoder(GraphBuilder& g, const Config& c)
      : words(g.parameter("model.embeddings.tok_embeddings.weight", {c.vocabulary, c.hidden},
                          ParameterRole::embedding)),
        c_(c),
        embedding_norm_(g, "model.embeddings.norm", c.hidden, c.norm_bias) {
    for (int64_t i = 0; i < c.layers; ++i) {
      layers_.emplace_back(g, c, "model.layers." + std::to_string(i), i == 0);
    }
    final_norm_ = LayerNorm(g, "model.final_norm", c.hidden, c.norm_bias);
    declare_frequencies(g, LayerMask::full, "full_attention");
    declare_frequencies(g, LayerMask::sliding, "sliding_attention");
  }

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& ids) const {
    const Var positions = g.unsqueeze(g.arange(options.sequence), 0);
    Var x = g.embedding(words, ids);
    x = embedding_norm_(g, x);
    x = g.dropout(x, c_.embedding_dropout);
    const Var embedded = x;  // among the words that masks are asked for with
    std::array<Shared, 2> shared;
    shared[index_of(LayerMask::sliding)].mask = two_sided_sliding_mask(g, options, x, c_.window);
    for (size_t i = 0; i < shared.size(); ++i) {
      if (!frequencies_[i]) continue;
      std::tie(shared[i].cos, shared[i].sin) = rotary_tables(g, frequencies_[i], positions, x);
    }
    for (size_t i = 0; i < layers_.size(); ++i) {
      x = layers_[i](g, options, x, shared[index_of(c_.mask_of_layer[i])]);
    }
    x = final_norm_(g, x);
    return x;
  }

  Var words;

 private:
  static size_t index_of(LayerMask kind) { return kind == LayerMask::sliding ? 1 : 0; }

  void declare_frequencies(GraphBuilder& g, LayerMask kind, const std::string& type) {
    if (std::ranges::find(c_.mask_of_layer, kind) == c_.mask_of_layer.end()) return;
    const std::string name = "model.rotary_emb." + type;
    const Dims half{c_.head_dim() / 2};
    frequencies_[index_of(kind)] = g.buffer(name + "_inv_freq", half, DType::f32, false);
    g.buffer(name + "_original_inv_freq", half, DType::f32, false);
  }

  const Config& c_;
  LayerNorm embedding_norm_;
  std::vector<Layer> layers_;
  LayerNorm final_norm_;
  std::array<Var, 2> frequencies_;  // of a kind of layers; empty where there are none
};

// ModernBertPredictionHead and the decoder on it.
TokenHead token_head(GraphBuilder& g, const Config& c, const Var& words) {
  TokenHead head{.name = "decoder", .activation = c.classifier_activation};
  head.dense = Linear(g, "head.dense", c.hidden, c.hidden, c.classifier_bias);
  head.norm = LayerNorm(g, "head.norm", c.hidden, c.norm_bias);
  head.weight = token_weight(g, head.name + ".weight", {c.vocabulary, c.hidden}, c.tied, words);
  if (c.decoder_bias) {
    head.bias = g.parameter(head.name + ".bias", {c.vocabulary}, ParameterRole::bias);
  }
  return head;
}

class Classifier {
 public:
  Classifier(GraphBuilder& g, const Config& c, int64_t classes)
      : c_(c),
        dense_(g, "head.dense", c.hidden, c.hidden, c.classifier_bias),
        norm_(g, "head.norm", c.hidden, c.norm_bias),
        weight_(g.parameter(kName + ".weight", {classes, c.hidden}, ParameterRole::lm_head)),
        bias_(g.parameter(kName + ".bias", {classes}, ParameterRole::bias)) {}

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& hidden) const {
    const Var state = c_.pools_mean ? mean(g, options, hidden) : g.select(hidden, 1, 0);
    Var x = dense_(g, state);
    x = activate(g, c_.classifier_activation, x);
    x = norm_(g, x);
    x = g.dropout(x, c_.classifier_dropout);
    RegionScope region(g, RegionKind::lm_head, kName, {&x});
    Var logits = g.linear(x, weight_, bias_);
    region.leave({&logits});
    return logits;
  }

 private:
  // Of the tokens that are no padding: all, where no mask is passed.
  static Var mean(GraphBuilder& g, const BuildOptions& options, const Var& hidden) {
    const Var mask = g.full({options.batch, options.sequence}, DType::boolean);
    Var sum = g.sum(g.mul(hidden, g.unsqueeze(mask, -1)), {1}, false);
    return g.div(std::move(sum), g.sum(mask, {1}, true));
  }

  inline static const std::string kName = "classifier";
  const Config& c_;
  Linear dense_;
  LayerNorm norm_;
  Var weight_, bias_;
};

void classify(GraphBuilder& g, const Config& c, const BuildOptions& options) {
  const Encoder encoder(g, c);
  const Classifier classifier(g, c, *options.classes);
  const auto head = [&](GraphBuilder& in, const Var& hidden) {
    return classifier(in, options, hidden);
  };
  run_encoder(g, options, *options.classes, encoder, head);
}

void fill_in(GraphBuilder& g, const Config& c, const BuildOptions& options) {
  const Encoder encoder(g, c);
  run_encoder(g, options, c.vocabulary, encoder, token_head(g, c, encoder.words), wide_token_loss);
}

}  // namespace

Result<Graph> build_modernbert(const text::JsonView& json, const BuildOptions& options) {
  HEADROOM_ASSIGN(const Config c, read_config(json, options));
  GraphBuilder g;
  options.classes ? classify(g, c, options) : fill_in(g, c, options);
  return g.finish();
}

}  // namespace headroom::model
