// Falcon (transformers' FalconForCausalLM): one head for all keys (7b), or one for each group of
// queries (40b, its "new decoder architecture"), side by side with the perceptron; or, in
// Falcon-RW, GPT's order with ALiBi biases. Its linear layers add their bias in a step of its own.
#include "model/families/falcon.h"

#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "model/blocks/alibi.h"
#include "model/blocks/attention.h"
#include "model/blocks/cache.h"
#include "model/blocks/decoder_frame.h"
#include "model/blocks/head.h"
#include "model/blocks/linear.h"
#include "model/blocks/mask.h"
#include "model/blocks/mlp.h"
#include "model/blocks/norm.h"
#include "model/blocks/rotary.h"
#include "model/builder.h"
#include "model/families/config.h"

namespace headroom::model {

namespace {

// Which heads of keys and values there are.
enum class Heads : uint8_t { each, one, grouped };

struct Config {
  int64_t vocabulary, hidden, inner, layers, heads, kv_heads, head_dim;
  double hidden_dropout, attention_dropout;
  Heads layout;
  bool alibi, parallel, bias, tied;
  bool two_norms;  // one for attention, one for the perceptron beside it
  Activation activation;
};

Result<Config> read_config(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  Config c{};
  c.vocabulary = options.vocabulary.value_or(in.size({"vocab_size"}, 65024));
  c.hidden = in.size({"n_embed", "hidden_size"}, 4544);
  c.inner = in.size({"ffn_hidden_size"}, 4 * c.hidden, 4 * kSizeMax);
  c.layers = in.size({"num_hidden_layers", "n_layer"}, 32, kLayersMax);
  c.heads = in.size({"num_attention_heads", "n_head"}, 71, kHeadsMax);
  c.kv_heads = in.size({"num_kv_heads", "n_head_kv"}, c.heads, kHeadsMax);
  c.hidden_dropout = in.dropout("hidden_dropout", 0, options);
  c.attention_dropout = in.dropout("attention_dropout", 0, options);
  const bool grouped = in.flag("new_decoder_architecture", false);
  const bool multi_query = in.flag("multi_query", true);
  c.layout = grouped ? Heads::grouped : multi_query ? Heads::one : Heads::each;
  if (c.layout == Heads::one) c.kv_heads = 1;
  c.alibi = in.flag("alibi", false);
  c.parallel = in.flag("parallel_attn", true);
  c.bias = in.flag("bias", false);
  c.tied = in.flag("tie_word_embeddings", true);
  c.activation = in.activation("activation", Activation::gelu);
  const int64_t norms = in.size({"num_ln_in_parallel_attn"}, grouped ? 2 : 1, 2);
  c.two_norms = norms == 2;
  in.require(c.hidden % c.heads == 0, "num_attention_heads", "the heads do not divide hidden_size");
  in.require(c.heads % c.kv_heads == 0, "num_kv_heads", "does not divide num_attention_heads");
  in.require(c.layout != Heads::each || c.kv_heads == c.heads, "num_kv_heads",
             "without multi_query, transformers wants as many as there are heads");
  in.require(!grouped || c.parallel, "parallel_attn",
             "transformers has no new decoder architecture without it");
  in.require(grouped || !c.two_norms, "num_ln_in_parallel_attn",
             "two norms need the new decoder architecture");
  in.require(!c.alibi || options.attention != Attention::flash_attention_2, "alibi",
             "not supported by FlashAttention-2");
  in.require(!c.alibi || !options.use_cache, "alibi", "not modelled with a key-value cache");
  if (in.error()) return *in.error();
  c.head_dim = c.hidden / c.heads;
  in.require(c.alibi || c.head_dim % 2 == 0, "num_attention_heads",
             "rotates an odd number of dimensions");
  if (in.error()) return *in.error();
  return c;
}

// FalconLinear: x @ weight.T, then the bias.
struct SplitLinear {
  Linear linear;
  Var bias;
  SplitLinear(GraphBuilder& g, const std::string& name, int64_t in, int64_t out, bool has_bias)
      : linear(g, name, in, out, false),
        bias(has_bias ? g.parameter(name + ".bias", {out}, ParameterRole::bias) : Var()) {}
  Var operator()(GraphBuilder& g, const Var& x) const {
    const Var product = linear(g, x);
    return bias ? g.add(product, bias) : product;
  }
};

struct Inputs {
  const Var& cos;
  const Var& sin;
  const Var& alibi;
  const Var& mask;
  const Var& positions;
};

class SelfAttention {
 public:
  SelfAttention(GraphBuilder& g, const Config& config, const std::string& name)
      : c_(config),
        qkv_(g, name + ".query_key_value", c_.hidden, c_.head_dim * (c_.heads + 2 * c_.kv_heads),
             c_.bias),
        dense_(g, name + ".dense", c_.hidden, c_.hidden, c_.bias) {}

  Attended operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                      const Inputs& in) const {
    const int64_t b = options.batch;
    const int64_t s = options.sequence;
    const Var fused = qkv_(g, x);
    std::array<Var, 3> parts = split_heads(g, options, fused);
    for (Var& part : parts) part = g.transpose(part, 1, 2);
    auto& [query, key, value] = parts;
    if (!in.alibi) {
      std::tie(query, key) = apply_rotary(g, query, key, in.cos, in.sin, c_.head_dim);
    }
    const AttentionShape shape{b, s, c_.heads, c_.layout == Heads::one ? 1 : c_.heads, c_.head_dim};
    std::tie(key, value) = update_cache(g, options, shape, key, value);
    std::vector<Var> held;
    Attended attended = attend_heads(g, options, query, key, value, in, held);
    attended.output = g.reshape(g.permute(attended.output, {0, 2, 1, 3}), {b, s, c_.hidden});
    attended.output = dense_(g, attended.output);
    return attended;
  }

 private:
  // Queries, keys and values, each [batch, sequence, its heads, head].
  std::array<Var, 3> split_heads(GraphBuilder& g, const BuildOptions& options,
                                 const Var& fused) const {
    const int64_t b = options.batch;
    const int64_t s = options.sequence;
    const int64_t group = c_.heads / c_.kv_heads;
    if (c_.layout == Heads::each) {
      const Var all = g.view(fused, {b, s, c_.heads, 3, c_.head_dim});
      return {g.select(all, 3, 0), g.select(all, 3, 1), g.select(all, 3, 2)};
    }
    if (c_.layout == Heads::one) {
      const Var all = g.view(fused, {b, s, c_.heads + 2, c_.head_dim});
      const Var query = g.slice(all, 2, 0, c_.heads);
      const Var key = g.index(all, g.full({1}, DType::i64), 2);
      return {query, key, g.index(all, g.full({1}, DType::i64), 2)};
    }
    const Var all = g.view(fused, {b, s, -1, group + 2, c_.head_dim});
    const Var query = g.slice(all, 3, 0, group);
    Var key = g.index(all, g.full({1}, DType::i64), 3);
    Var value = g.index(all, g.full({1}, DType::i64), 3);
    const std::vector<int64_t> grouped{b, s, c_.kv_heads, group, c_.head_dim};
    key = g.expand(key, grouped);
    value = g.expand(value, grouped);
    const std::vector<int64_t> flat{b, s, c_.heads, c_.head_dim};
    const Var flat_query = g.reshape(query, flat);
    const Var flat_key = g.reshape(key, flat);
    return {flat_query, flat_key, g.reshape(value, flat)};
  }

  // [batch, heads, sequence, head]. SDPA is called with one head for all, and broadcasts it. `held`
  // takes what variables hold until the module returns.
  Attended attend_heads(GraphBuilder& g, const BuildOptions& options, const Var& query,
                        const Var& key, const Var& value, const Inputs& in,
                        std::vector<Var>& held) const {
    const auto swapped = [&](const Var& x) { return g.transpose(x, 1, 2); };
    switch (options.attention) {
      case Attention::eager:
        return in.alibi ? attend_biased(g, options, query, key, value, in, held)
                        : attend_plain(g, query, key, value, in.mask);
      case Attention::sdpa: {
        const double dropout = in.alibi ? c_.attention_dropout : 0;
        return {g.sdpa(query, key, value, in.mask, false, false, dropout), {}};
      }
      case Attention::flash_attention_2: {
        const Var q = swapped(query);
        const Var k = swapped(key);
        return {swapped(g.flash_attention(q, k, swapped(value), true, c_.attention_dropout)), {}};
      }
    }
    return {};
  }

  // There is no dropout without ALiBi.
  Attended attend_plain(GraphBuilder& g, const Var& query, const Var& key, const Var& value,
                        const Var& mask) const {
    Var scores = g.matmul(query, g.transpose(key, -1, -2));
    scores = g.div_assign(scores, 2.0);
    // Softmax in the type that the scores have.
    scores = g.softmax(g.add(scores, mask), -1);
    Var output = g.matmul(scores, value);
    return {output, scores};
  }

  Attended attend_biased(GraphBuilder& g, const BuildOptions& options, const Var& query,
                         const Var& key, const Var& value, const Inputs& in,
                         std::vector<Var>& held) const {
    const Var product = g.matmul(query, g.transpose(key, -1, -2));
    const Var scores = g.to(product, DType::f32);
    Var logits = g.add(scores, g.view(in.alibi, {options.batch, c_.heads, 1, -1}));
    logits = g.mul_assign(logits, 0.5);
    Var probabilities;
    {
      const Var biased = g.add(logits, in.mask);
      probabilities = g.softmax(g.to_like(biased, query), -1);
    }
    probabilities = g.dropout(probabilities, c_.attention_dropout);
    Var output = g.matmul(probabilities, value);
    held = {product, scores, logits};
    return {output, probabilities};
  }

  Config c_;
  SplitLinear qkv_, dense_;
};

class Layer {
 public:
  Layer(GraphBuilder& g, const Config& config, const std::string& name)
      : c_(config),
        name_(name),
        attention_(g, c_, name + ".self_attention"),
        in_(g, name + ".mlp.dense_h_to_4h", c_.hidden, c_.inner, c_.bias),
        out_(g, name + ".mlp.dense_4h_to_h", c_.inner, c_.hidden, c_.bias) {
    if (!c_.parallel) mlp_norm_.emplace(g, name + ".post_attention_layernorm", c_.hidden);
    attention_norm_.emplace(g, name + (c_.two_norms ? ".ln_attn" : ".input_layernorm"), c_.hidden);
    if (c_.two_norms) mlp_norm_.emplace(g, name + ".ln_mlp", c_.hidden);
  }

  // Hidden states, and the attention weights that it returns beside them.
  Attended operator()(GraphBuilder& g, const BuildOptions& options, const Var& input,
                      const Inputs& in) const {
    RegionScope region(g, RegionKind::layer, name_,
                       {&input, &in.alibi, &in.mask, &in.positions, &in.cos, &in.sin});
    Var residual = input;
    const Var for_attention = (*attention_norm_)(g, input);
    Var for_mlp = c_.two_norms ? (*mlp_norm_)(g, input) : for_attention;
    Attended attended;
    {
      RegionScope inner(g, RegionKind::attention, name_ + ".self_attention", {&for_attention});
      attended = attention_(g, options, for_attention, in);
      inner.leave({&attended.output});
    }
    if (!c_.parallel) {
      residual = dropout_add(g, attended.output, residual, c_.attention_dropout);
      for_mlp = (*mlp_norm_)(g, residual);
    }
    Var fed_forward = mlp(g, for_mlp);
    if (c_.parallel) fed_forward = g.add_assign(fed_forward, attended.output);
    Var output = dropout_add(g, fed_forward, residual, c_.hidden_dropout);
    region.leave({&output, &attended.weights});
    return {output, attended.weights};
  }

 private:
  Var mlp(GraphBuilder& g, const Var& input) const {
    RegionScope region(g, RegionKind::mlp, name_ + ".mlp", {&input});
    Var x = activate(g, c_.activation, in_(g, input));
    x = out_(g, x);
    region.leave({&x});
    return x;
  }

  Config c_;
  std::string name_;
  SelfAttention attention_;
  SplitLinear in_, out_;
  std::optional<LayerNorm> attention_norm_, mlp_norm_;
};

// [batch * heads, 1, sequence] in the type of `like`.
Var alibi_biases(GraphBuilder& g, const BuildOptions& options, const Config& c, const Var& ones,
                 const Var& like) {
  std::vector<Var> held;
  const Var slopes = alibi_slopes(g, c.heads, &held);
  const Var distances = g.unsqueeze(g.mul(g.add(g.cumsum(ones, -1), -1.0), ones), 1);
  const Var biases = g.mul(g.to(g.unsqueeze(slopes, -1), DType::bf16), distances);
  return g.to_like(g.reshape(biases, {options.batch * c.heads, 1, options.sequence}), like);
}

// The mask that has the biases in it, [batch, heads, sequence, sequence]; `alibi` is reshaped.
Var biased_mask(GraphBuilder& g, const BuildOptions& options, Var mask, Var& alibi,
                const Var& like) {
  if (options.attention == Attention::sdpa) mask = additive_mask(g, mask, like);
  alibi = g.reshape(alibi, {options.batch, -1, 1, options.sequence});
  Var scaled = g.div(alibi, 2.0);
  return g.masked_fill(std::move(scaled), g.compare(mask));
}

}  // namespace

Result<Graph> build_falcon(const text::JsonView& json, const BuildOptions& options) {
  HEADROOM_ASSIGN(const Config c, read_config(json, options));
  GraphBuilder g;
  {
    const Var tokens = g.parameter("transformer.word_embeddings.weight", {c.vocabulary, c.hidden},
                                   ParameterRole::embedding);
    std::vector<Layer> layers;
    for (int64_t i = 0; i < c.layers; ++i) {
      layers.emplace_back(g, c, "transformer.h." + std::to_string(i));
    }
    const LayerNorm norm(g, "transformer.ln_f", c.hidden);
    const Dims half{(c.head_dim + 1) / 2};
    const Var frequencies = g.buffer("transformer.rotary_emb.inv_freq", half, DType::f32, false);
    g.buffer("transformer.rotary_emb.original_inv_freq", half, DType::f32, false);
    const LmHead head(g, options, "lm_head", c.vocabulary, c.hidden, c.tied ? tokens : Var());
    const Var ids = g.input("input_ids", {options.batch, options.sequence}, DType::i64);
    const Var labels = labels_input(g, options);

    Var x;
    {
      const Var embedded = g.embedding(tokens, ids);
      Var ones, alibi;
      if (c.alibi) {
        ones = g.full({options.batch, options.sequence}, DType::i64);
        alibi = alibi_biases(g, options, c, ones, embedded);
      }
      const Var positions = default_position_ids(g, options);
      Var mask = materialized_causal_mask(g, options, embedded);
      if (c.alibi && mask) mask = biased_mask(g, options, std::move(mask), alibi, embedded);
      x = embedded;
      const auto [cos, sin] = rotary_tables(g, frequencies, positions, x);
      Attended outputs;  // Python's tuple, which the next layer's replaces
      for (const Layer& layer : layers) {
        outputs = layer(g, options, x, {cos, sin, alibi, mask, positions});
        x = outputs.output;
      }
      x = norm(g, x);
    }
    head.finish(g, options, x, ids, labels, c.vocabulary, kLossInModelType);
  }
  return g.finish();
}

}  // namespace headroom::model
