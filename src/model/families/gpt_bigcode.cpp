// GPTBigCode: SantaCoder and StarCoder (transformers' GPTBigCodeForCausalLM).
#include "model/families/gpt_bigcode.h"

#include <string>
#include <vector>

#include "model/blocks/attention.h"
#include "model/blocks/head.h"
#include "model/blocks/linear.h"
#include "model/blocks/mask.h"
#include "model/blocks/mlp.h"
#include "model/blocks/norm.h"
#include "model/builder.h"
#include "model/families/config.h"

namespace headroom::model {

namespace {

struct Config {
  int64_t vocabulary, positions, hidden, inner, layers, heads, kv_heads;
  double embedding_dropout, attention_dropout, residual_dropout;
  Activation activation;
  bool tied, use_cache;
};

// The model keeps a triangular mask of positions squared.
constexpr int64_t kPositionsMax = int64_t{1} << 20;

Result<Config> read_config(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  Config c{};
  c.vocabulary = options.vocabulary.value_or(in.size({"vocab_size"}, 50257));
  c.positions = in.size({"n_positions", "max_position_embeddings"}, 1024, kPositionsMax);
  c.hidden = in.size({"n_embd", "hidden_size"}, 768);
  c.inner = in.size({"n_inner"}, 4 * c.hidden, 4 * kSizeMax);
  c.layers = in.size({"n_layer", "num_hidden_layers"}, 12, kLayersMax);
  c.heads = in.size({"n_head", "num_attention_heads"}, 12, kHeadsMax);
  c.kv_heads = in.flag("multi_query", true) ? 1 : c.heads;
  c.embedding_dropout = in.dropout("embd_pdrop", 0.1, options);
  c.attention_dropout = in.dropout("attn_pdrop", 0.1, options);
  c.residual_dropout = in.dropout("resid_pdrop", 0.1, options);
  c.activation = in.activation("activation_function", Activation::gelu_tanh);
  c.tied = in.flag("tie_word_embeddings", true);
  c.use_cache = in.flag("use_cache", true);
  in.require_positions(options, c.positions);
  in.require(c.hidden % c.heads == 0, "n_head", "the heads do not divide n_embd");
  in.require(!in.flag("add_cross_attention", false), "add_cross_attention",
             "cross attention is not modelled");
  if (in.error()) return *in.error();
  return c;
}

// Until then key and value were split from each other after the query, and that pair was the
// layer's cache.
constexpr op::Version kSplitsInThree{4, 54};
// Before, a checkpointed layer made its cache as well, as config.use_cache says by default; no
// other family here did. Its storage is that of the whole product of query, key and value.
constexpr op::Version kNoCacheBesideCheckpoints{4, 53};

bool makes_cache(const BuildOptions& options, const Config& c) {
  return options.training && c.use_cache && options.transformers < kNoCacheBesideCheckpoints;
}

struct SelfAttention {
  Config c;
  Linear qkv, projection;
  SelfAttention(GraphBuilder& g, const Config& config, const std::string& name)
      : c(config),
        qkv(g, name + ".c_attn", c.hidden, c.hidden + 2 * c.kv_heads * (c.hidden / c.heads), true),
        projection(g, name + ".c_proj", c.hidden, c.hidden, true) {}

  // Query, key and value, [batch, heads or 1, sequence, head]: views of one product. `pair` becomes
  // key and value in one, where the version splits them from each other last.
  std::vector<Var> query_key_value(GraphBuilder& g, const BuildOptions& options, const Var& x,
                                   Var& pair) const {
    const int64_t head_dim = c.hidden / c.heads;
    const int64_t query_dims = c.kv_heads > 1 ? head_dim : c.hidden;
    Var product = qkv(g, x);
    if (c.kv_heads > 1) {
      const std::vector<int64_t> sizes{options.batch, options.sequence, c.heads, 3 * head_dim};
      product = g.transpose(g.view(std::move(product), sizes), 1, 2);
    } else {
      product = g.unsqueeze(std::move(product), 1);
    }
    std::vector<Var> parts;
    if (options.transformers < kSplitsInThree) {
      parts = g.split(std::move(product), {query_dims, 2 * head_dim}, 3);
      pair = std::move(parts[1]);
      const std::vector<Var> last = g.split(pair, {head_dim, head_dim}, 3);
      parts = {std::move(parts[0]), last[0], last[1]};
    } else {
      parts = g.split(std::move(product), {query_dims, head_dim, head_dim}, 3);
    }
    if (c.kv_heads > 1) return parts;
    const std::vector<int64_t> sizes{options.batch, options.sequence, -1, head_dim};
    parts[0] = g.transpose(g.view(parts[0], sizes), 1, 2);
    return parts;
  }

  Attended operator()(GraphBuilder& g, const BuildOptions& options, const Var& x, const Var& mask,
                      Var& pair) const {
    const int64_t b = options.batch;
    const int64_t s = options.sequence;
    const std::vector<Var> parts = query_key_value(g, options, x, pair);
    const AttentionShape shape{b,   s, c.heads, c.kv_heads, c.hidden / c.heads, c.attention_dropout,
                               true};
    Attended attended = attend(g, options, shape, parts[0], parts[1], parts[2], mask);
    attended.output = g.contiguous(g.reshape(attended.output, {b, s, -1}));
    attended.output = projection(g, attended.output);
    attended.output = g.dropout(attended.output, c.residual_dropout);
    return attended;
  }
};

struct Layer {
  std::string name;
  bool keeps_cache;
  LayerNorm norm1;
  SelfAttention attention;
  LayerNorm norm2;
  Mlp<Linear> mlp;
  Layer(GraphBuilder& g, const BuildOptions& options, const Config& c, const std::string& path)
      : name(path),
        keeps_cache(makes_cache(options, c)),
        norm1(g, path + ".ln_1", c.hidden),
        attention(g, c, path + ".attn"),
        norm2(g, path + ".ln_2", c.hidden),
        mlp{Linear(g, path + ".mlp.c_fc", c.hidden, c.inner, true),
            Linear(g, path + ".mlp.c_proj", c.inner, c.hidden, true), c.activation,
            c.residual_dropout} {}

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& input,
                 const Var& mask) const {
    RegionScope region(g, RegionKind::layer, name, {&input, &mask});
    Var x = norm1(g, input);
    Attended attended;
    Var present;
    {
      RegionScope inner(g, RegionKind::attention, name + ".attn", {&x});
      attended = attention(g, options, x, mask, present);
      inner.leave({&attended.output});
    }
    x = g.add(attended.output, input);
    const Var residual = x;
    x = norm2(g, x);
    Var fed_forward;
    {
      RegionScope inner(g, RegionKind::mlp, name + ".mlp", {&x});
      fed_forward = mlp(g, options, x);
      inner.leave({&fed_forward});
    }
    x = g.add(residual, fed_forward);
    if (keeps_cache) {
      g.keep(present);
      region.leave({&x, &present});
    } else {
      region.leave({&x});
    }
    return x;
  }
};

}  // namespace

Result<Graph> build_gpt_bigcode(const text::JsonView& json, const BuildOptions& options) {
  HEADROOM_ASSIGN(const Config c, read_config(json, options));
  GraphBuilder g;
  {
    const Var tokens =
        g.parameter("transformer.wte.weight", {c.vocabulary, c.hidden}, ParameterRole::embedding);
    const Var places =
        g.parameter("transformer.wpe.weight", {c.positions, c.hidden}, ParameterRole::embedding);
    std::vector<Layer> layers;
    for (int64_t i = 0; i < c.layers; ++i) {
      layers.emplace_back(g, options, c, "transformer.h." + std::to_string(i));
    }
    const LayerNorm norm(g, "transformer.ln_f", c.hidden);
    g.buffer("transformer.bias", {c.positions, c.positions}, DType::boolean, false);
    const LmHead head(g, options, "lm_head", c.vocabulary, c.hidden, c.tied ? tokens : Var());
    const Var ids = g.input("input_ids", {options.batch, options.sequence}, DType::i64);
    const Var labels = labels_input(g, options);

    Var x;
    {
      const Var embedded = g.embedding(tokens, ids);
      const Var positions = default_position_ids(g, options);
      const Var mask = causal_mask(g, options, embedded, positions);
      const Var position_embeds = g.embedding(places, positions);
      x = g.add(embedded, position_embeds);
      x = g.dropout(x, c.embedding_dropout);
      for (const Layer& layer : layers) x = layer(g, options, x, mask);
      x = norm(g, x);
    }
    head.finish(g, options, x, ids, labels, c.vocabulary, kLossInModelType);
  }
  return g.finish();
}

}  // namespace headroom::model
