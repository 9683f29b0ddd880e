// Llama 1 to 3.x (transformers' LlamaForCausalLM).
#include "model/families/llama.h"

#include <string>
#include <vector>

#include "model/blocks/attention.h"
#include "model/blocks/linear.h"
#include "model/blocks/loss.h"
#include "model/blocks/mask.h"
#include "model/blocks/norm.h"
#include "model/blocks/rotary.h"
#include "model/builder.h"

namespace headroom::model {

namespace {

struct Config {
  int64_t vocabulary, hidden, intermediate, layers, heads, kv_heads, head_dim;
  bool tied;
  bool attention_bias;
  bool mlp_bias;
  double attention_dropout;
};

constexpr int64_t kSizeMax = int64_t{1} << 24;
constexpr int64_t kLayersMax = 1024;

Result<Config> read_config(const text::JsonView& json, const BuildOptions& options) {
  Config c{};
  HEADROOM_ASSIGN(c.vocabulary, json.get_int("vocab_size", 1, kSizeMax));
  c.vocabulary = options.vocabulary.value_or(c.vocabulary);
  HEADROOM_ASSIGN(c.hidden, json.get_int("hidden_size", 1, kSizeMax));
  HEADROOM_ASSIGN(c.intermediate, json.get_int("intermediate_size", 1, kSizeMax));
  HEADROOM_ASSIGN(c.layers, json.get_int("num_hidden_layers", 1, kLayersMax));
  HEADROOM_ASSIGN(c.heads, json.get_int("num_attention_heads", 1, kSizeMax));
  HEADROOM_ASSIGN(const auto kv_heads, json.optional_int("num_key_value_heads", 1, kSizeMax));
  c.kv_heads = kv_heads.value_or(c.heads);
  HEADROOM_ASSIGN(const auto head_dim, json.optional_int("head_dim", 1, kSizeMax));
  c.head_dim = head_dim.value_or(c.hidden / c.heads);
  HEADROOM_ASSIGN(const auto tied, json.optional_bool("tie_word_embeddings"));
  c.tied = tied.value_or(false);
  HEADROOM_ASSIGN(const auto attention_bias, json.optional_bool("attention_bias"));
  c.attention_bias = attention_bias.value_or(false);
  HEADROOM_ASSIGN(const auto mlp_bias, json.optional_bool("mlp_bias"));
  c.mlp_bias = mlp_bias.value_or(false);
  HEADROOM_ASSIGN(const auto dropout, json.optional_double("attention_dropout", 0, 1));
  c.attention_dropout = dropout.value_or(0);
  return c;
}

struct SelfAttention {
  Config c;
  Linear q, k, v, o;
  SelfAttention(GraphBuilder& g, const Config& config, const std::string& name)
      : c(config),
        q(g, name + ".q_proj", c.hidden, c.heads * c.head_dim, c.attention_bias),
        k(g, name + ".k_proj", c.hidden, c.kv_heads * c.head_dim, c.attention_bias),
        v(g, name + ".v_proj", c.hidden, c.kv_heads * c.head_dim, c.attention_bias),
        o(g, name + ".o_proj", c.heads * c.head_dim, c.hidden, c.attention_bias) {}

  Attended operator()(GraphBuilder& g, const BuildOptions& options, const Var& x, const Var& cos,
                      const Var& sin, const Var& mask) const {
    const int64_t b = options.batch;
    const int64_t s = options.sequence;
    Var query = g.transpose(g.view(q(g, x), {b, s, -1, c.head_dim}), 1, 2);
    Var key = g.transpose(g.view(k(g, x), {b, s, -1, c.head_dim}), 1, 2);
    const Var value = g.transpose(g.view(v(g, x), {b, s, -1, c.head_dim}), 1, 2);
    std::tie(query, key) = apply_rotary(g, query, key, cos, sin, c.head_dim);
    const AttentionShape shape{b, s, c.heads, c.kv_heads, c.head_dim,
                               options.training ? c.attention_dropout : 0, true};
    Attended attended = attend(g, options, shape, query, key, value, mask);
    attended.output = g.contiguous(g.reshape(attended.output, {b, s, -1}));
    attended.output = o(g, attended.output);
    return attended;
  }
};

struct Mlp {
  Linear gate, up, down;
  Mlp(GraphBuilder& g, const Config& c, const std::string& name)
      : gate(g, name + ".gate_proj", c.hidden, c.intermediate, c.mlp_bias),
        up(g, name + ".up_proj", c.hidden, c.intermediate, c.mlp_bias),
        down(g, name + ".down_proj", c.intermediate, c.hidden, c.mlp_bias) {}
  Var operator()(GraphBuilder& g, const Var& x) const {
    // Named, since C++ does not say in which order arguments are made.
    Var activated = g.silu(gate(g, x));
    return down(g, g.mul(std::move(activated), up(g, x)));
  }
};

struct Layer {
  std::string name;
  SelfAttention attention;
  Mlp mlp;
  RmsNorm input_norm, post_attention_norm;
  Layer(GraphBuilder& g, const Config& c, const std::string& path)
      : name(path),
        attention(g, c, path + ".self_attn"),
        mlp(g, c, path + ".mlp"),
        input_norm(g, path + ".input_layernorm", c.hidden),
        post_attention_norm(g, path + ".post_attention_layernorm", c.hidden) {}

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& input, const Var& cos,
                 const Var& sin, const Var& mask, const Var& positions) const {
    RegionScope region(g, RegionKind::layer, name, {&input, &cos, &sin, &mask, &positions});
    Var residual = input;
    Var x = input_norm(g, input);
    Var unused_weights;
    {
      RegionScope inner(g, RegionKind::attention, name + ".self_attn", {&x});
      const Attended attended = attention(g, options, x, cos, sin, mask);
      x = attended.output;
      unused_weights = attended.weights;
      inner.leave({&x});
    }
    x = g.add(residual, x);
    residual = x;
    x = post_attention_norm(g, x);
    {
      RegionScope inner(g, RegionKind::mlp, name + ".mlp", {&x});
      x = mlp(g, x);
      inner.leave({&x});
    }
    x = g.add(residual, x);
    region.leave({&x});
    return x;
  }
};

}  // namespace

Result<Graph> build_llama(const text::JsonView& json, const BuildOptions& options) {
  HEADROOM_ASSIGN(const Config c, read_config(json, options));
  GraphBuilder g;
  {
    const Var embed = g.parameter("model.embed_tokens.weight", {c.vocabulary, c.hidden},
                                  ParameterRole::embedding);
    std::vector<Layer> layers;
    for (int64_t i = 0; i < c.layers; ++i) {
      layers.emplace_back(g, c, "model.layers." + std::to_string(i));
    }
    const RmsNorm norm(g, "model.norm", c.hidden);
    const Var frequencies =
        g.buffer("model.rotary_emb.inv_freq", {c.head_dim / 2}, DType::f32, false);
    g.buffer("model.rotary_emb.original_inv_freq", {c.head_dim / 2}, DType::f32, false);
    const Var head = c.tied ? g.tied("lm_head.weight", embed, ParameterRole::lm_head)
                            : g.parameter("lm_head.weight", {c.vocabulary, c.hidden},
                                          ParameterRole::lm_head);
    const Var ids = g.input("input_ids", {options.batch, options.sequence}, DType::i64);
    const Var labels = g.input("labels", {options.batch, options.sequence}, DType::i64);

    Var x;
    {
      const Var embedded = g.embedding(embed, ids);
      const Var positions = default_position_ids(g, options);
      const Var mask = causal_mask(g, options, embedded, positions);
      x = embedded;
      const auto [cos, sin] =
          rotary_tables(g, frequencies, positions, x, options.sequence, c.head_dim);
      for (const Layer& layer : layers) x = layer(g, options, x, cos, sin, mask, positions);
      x = norm(g, x);
    }
    Var logits;
    {
      RegionScope region(g, RegionKind::lm_head, "lm_head", {&x});
      logits = g.linear(x, head);
      region.leave({&logits});
    }
    const Var loss = causal_lm_loss(g, options, logits, labels, c.vocabulary);
    g.set_outputs(loss, logits, {});
  }
  return g.finish();
}

}  // namespace headroom::model
