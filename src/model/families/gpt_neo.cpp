// GPT-Neo (transformers' GPTNeoForCausalLM): scores in float32, every other layer with a window.
#include "model/families/gpt_neo.h"

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
  int64_t vocabulary, positions, hidden, inner, layers, heads;
  double embedding_dropout, attention_dropout, residual_dropout;
  Activation activation;
  bool tied;
};

// Each layer keeps a triangular mask of positions squared.
constexpr int64_t kPositionsMax = int64_t{1} << 20;

Result<Config> read_config(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  Config c{};
  c.vocabulary = options.vocabulary.value_or(in.size({"vocab_size"}, 50257));
  c.positions = in.size({"max_position_embeddings"}, 2048, kPositionsMax);
  c.hidden = in.size({"hidden_size"}, 2048);
  c.inner = in.size({"intermediate_size"}, 4 * c.hidden, 4 * kSizeMax);
  c.layers = in.size({"num_layers", "num_hidden_layers"}, 24, kLayersMax);
  c.heads = in.size({"num_heads", "num_attention_heads"}, 16, kHeadsMax);
  c.embedding_dropout = in.dropout("embed_dropout", 0, options);
  c.attention_dropout = in.dropout("attention_dropout", 0, options);
  c.residual_dropout = in.dropout("resid_dropout", 0, options);
  c.activation = in.activation("activation_function", Activation::gelu_new);
  c.tied = in.flag("tie_word_embeddings", true);
  in.require_positions(options, c.positions);
  in.require(c.hidden % c.heads == 0, "num_heads", "the heads do not divide hidden_size");
  if (in.error()) return *in.error();
  return c;
}

struct SelfAttention {
  Config c;
  Var bias;
  Linear k, v, q, out;
  SelfAttention(GraphBuilder& g, const Config& config, const std::string& name)
      : c(config),
        bias(g.buffer(name + ".bias", {1, 1, c.positions, c.positions}, DType::boolean, false)),
        k(g, name + ".k_proj", c.hidden, c.hidden, false),
        v(g, name + ".v_proj", c.hidden, c.hidden, false),
        q(g, name + ".q_proj", c.hidden, c.hidden, false),
        out(g, name + ".out_proj", c.hidden, c.hidden, true) {}

  Var heads_of(GraphBuilder& g, const BuildOptions& options, const Var& x) const {
    const int64_t head_dim = c.hidden / c.heads;
    return g.permute(g.view(x, {options.batch, options.sequence, c.heads, head_dim}), {0, 2, 1, 3});
  }

  Attended operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                      const Var& mask) const {
    const int64_t b = options.batch;
    const int64_t s = options.sequence;
    Var query = q(g, x);
    Var key = k(g, x);
    Var value = v(g, x);
    query = heads_of(g, options, query);
    key = heads_of(g, options, key);
    value = heads_of(g, options, value);
    const int64_t head_dim = c.hidden / c.heads;
    if (options.attention == Attention::flash_attention_2) {
      const AttentionShape shape{b, s, c.heads, c.heads, head_dim, c.attention_dropout, true};
      return project(g, options, attend(g, options, shape, query, key, value, mask));
    }
    Attended attended =
        attend_in_float32(g, query, key, value, c.attention_dropout, [&](Var& weights) {
          const Var causal = g.slice(g.slice(bias, 2, 0, s), 3, 0, s);
          const Var lowest = g.full({}, DType::f32);
          weights = g.where(causal, weights, lowest);
          if (mask) weights = g.add(weights, mask);
          return lowest;
        });
    attended.output = g.contiguous(g.permute(attended.output, {0, 2, 1, 3}));
    return project(g, options, std::move(attended));
  }

  Attended project(GraphBuilder& g, const BuildOptions& options, Attended attended) const {
    attended.output = g.view(attended.output, {options.batch, options.sequence, c.hidden});
    attended.output = out(g, attended.output);
    attended.output = g.dropout(attended.output, c.residual_dropout);
    return attended;
  }
};

struct Layer {
  std::string name;
  LayerNorm norm1;
  SelfAttention attention;
  LayerNorm norm2;
  Mlp<Linear> mlp;
  Layer(GraphBuilder& g, const Config& c, const std::string& path)
      : name(path),
        norm1(g, path + ".ln_1", c.hidden),
        attention(g, c, path + ".attn.attention"),
        norm2(g, path + ".ln_2", c.hidden),
        mlp{Linear(g, path + ".mlp.c_fc", c.hidden, c.inner, true),
            Linear(g, path + ".mlp.c_proj", c.inner, c.hidden, true), c.activation,
            c.residual_dropout} {}

  // Hidden states, and the attention weights that it returns beside them.
  Attended operator()(GraphBuilder& g, const BuildOptions& options, const Var& input,
                      const Var& mask) const {
    RegionScope region(g, RegionKind::layer, name, {&input, &mask});
    Var x = norm1(g, input);
    Attended attended;
    {
      RegionScope inner(g, RegionKind::attention, name + ".attn", {&x});
      attended = attention(g, options, x, mask);
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
    region.leave({&x, &attended.weights});
    return {x, attended.weights};
  }
};

}  // namespace

Result<Graph> build_gpt_neo(const text::JsonView& json, const BuildOptions& requested) {
  const BuildOptions options = without_sdpa(requested);
  HEADROOM_ASSIGN(const Config c, read_config(json, options));
  GraphBuilder g;
  {
    const Var tokens =
        g.parameter("transformer.wte.weight", {c.vocabulary, c.hidden}, ParameterRole::embedding);
    const Var places =
        g.parameter("transformer.wpe.weight", {c.positions, c.hidden}, ParameterRole::embedding);
    std::vector<Layer> layers;
    for (int64_t i = 0; i < c.layers; ++i) {
      layers.emplace_back(g, c, "transformer.h." + std::to_string(i));
    }
    const LayerNorm norm(g, "transformer.ln_f", c.hidden);
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
      Attended outputs;  // Python's tuple, which the next layer's replaces
      for (const Layer& layer : layers) {
        outputs = layer(g, options, x, mask);
        x = outputs.output;
      }
      x = norm(g, x);
    }
    head.finish(g, options, x, ids, labels, c.vocabulary, kLateFloat32Loss);
  }
  return g.finish();
}

}  // namespace headroom::model
