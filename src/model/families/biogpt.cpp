// BioGPT (transformers' BioGptForCausalLM).
#include "model/families/biogpt.h"

#include <string>
#include <vector>

#include "model/blocks/attention.h"
#include "model/blocks/head.h"
#include "model/blocks/linear.h"
#include "model/blocks/mask.h"
#include "model/blocks/norm.h"
#include "model/builder.h"
#include "model/families/config.h"

namespace headroom::model {

namespace {

struct Config {
  int64_t vocabulary, positions, hidden, inner, layers, heads;
  double dropout, attention_dropout, activation_dropout;
  Activation activation;
  bool tied;
};

// The first two rows of the position embedding stand for padding.
constexpr int64_t kPositionOffset = 2;

Result<Config> read_config(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  Config c{};
  c.vocabulary = options.vocabulary.value_or(in.size({"vocab_size"}, 42384));
  c.positions = in.size({"max_position_embeddings"}, 1024) + kPositionOffset;
  c.hidden = in.size({"hidden_size"}, 1024);
  c.inner = in.size({"intermediate_size"}, 4096);
  c.layers = in.size({"num_hidden_layers"}, 24, kLayersMax);
  c.heads = in.size({"num_attention_heads"}, 16, kHeadsMax);
  c.dropout = in.dropout("hidden_dropout_prob", 0.1, options);
  c.attention_dropout = in.dropout("attention_probs_dropout_prob", 0.1, options);
  c.activation_dropout = in.dropout("activation_dropout", 0, options);
  c.activation = in.activation("hidden_act", Activation::gelu);
  c.tied = in.flag("tie_word_embeddings", true);
  in.require_positions(options, c.positions - kPositionOffset);
  in.require(c.hidden % c.heads == 0, "num_attention_heads", "the heads do not divide hidden_size");
  if (in.error()) return *in.error();
  return c;
}

struct SelfAttention {
  Config c;
  Linear k, v, q, out;
  SelfAttention(GraphBuilder& g, const Config& config, const std::string& name)
      : c(config),
        k(g, name + ".k_proj", c.hidden, c.hidden, true),
        v(g, name + ".v_proj", c.hidden, c.hidden, true),
        q(g, name + ".q_proj", c.hidden, c.hidden, true),
        out(g, name + ".out_proj", c.hidden, c.hidden, true) {}

  Attended operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                      const Var& mask) const {
    const int64_t b = options.batch;
    const int64_t s = options.sequence;
    const int64_t head_dim = c.hidden / c.heads;
    const Var query = g.transpose(g.view(q(g, x), {b, s, -1, head_dim}), 1, 2);
    Var key = k(g, x);
    Var value = v(g, x);
    key = g.transpose(g.view(key, {b, s, -1, head_dim}), 1, 2);
    value = g.transpose(g.view(value, {b, s, -1, head_dim}), 1, 2);
    AttentionShape shape{b, s, c.heads, c.heads, head_dim, c.attention_dropout, true};
    shape.float32_softmax = false;
    Attended attended = attend(g, options, shape, query, key, value, mask);
    attended.output = g.contiguous(g.reshape(attended.output, {b, s, -1}));
    attended.output = out(g, attended.output);
    return attended;
  }
};

struct Layer {
  Config c;
  std::string name;
  SelfAttention attention;
  LayerNorm attention_norm;
  Linear in, out;
  LayerNorm final_norm;
  Layer(GraphBuilder& g, const Config& config, const std::string& path)
      : c(config),
        name(path),
        attention(g, c, path + ".self_attn"),
        attention_norm(g, path + ".self_attn_layer_norm", c.hidden),
        in(g, path + ".fc1", c.hidden, c.inner, true),
        out(g, path + ".fc2", c.inner, c.hidden, true),
        final_norm(g, path + ".final_layer_norm", c.hidden) {}

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& input, const Var& mask,
                 const Var& positions) const {
    RegionScope region(g, RegionKind::layer, name, {&input, &mask, &positions});
    Var residual = input;
    Var x = attention_norm(g, input);
    Var unused_weights;
    {
      RegionScope inner(g, RegionKind::attention, name + ".self_attn", {&x});
      const Attended attended = attention(g, options, x, mask);
      x = attended.output;
      unused_weights = attended.weights;
      inner.leave({&x});
    }
    x = g.dropout(x, c.dropout);
    x = g.add(residual, x);
    residual = x;
    x = final_norm(g, x);
    x = in(g, x);
    x = activate(g, c.activation, x);
    x = g.dropout(x, c.activation_dropout);
    x = out(g, x);
    x = g.dropout(x, c.dropout);
    x = g.add(residual, x);
    region.leave({&x});
    return x;
  }
};

}  // namespace

Result<Graph> build_biogpt(const text::JsonView& json, const BuildOptions& options) {
  HEADROOM_ASSIGN(const Config c, read_config(json, options));
  GraphBuilder g;
  {
    const Var tokens = g.parameter("biogpt.embed_tokens.weight", {c.vocabulary, c.hidden},
                                   ParameterRole::embedding);
    const Var places = g.parameter("biogpt.embed_positions.weight", {c.positions, c.hidden},
                                   ParameterRole::embedding);
    std::vector<Layer> layers;
    for (int64_t i = 0; i < c.layers; ++i) {
      layers.emplace_back(g, c, "biogpt.layers." + std::to_string(i));
    }
    const LayerNorm norm(g, "biogpt.layer_norm", c.hidden);
    const LmHead head(g, options, "output_projection", c.vocabulary, c.hidden,
                      c.tied ? tokens : Var());
    const Var ids = g.input("input_ids", {options.batch, options.sequence}, DType::i64);
    const Var labels = labels_input(g, options);

    Var x;
    {
      // Scaled by a number also where that is 1.
      const Var embedded = g.mul(g.embedding(tokens, ids), 1.0);
      const Var padding = g.full({options.batch, options.sequence}, DType::f32);
      const Var mask = causal_mask_with_padding(g, options, embedded, padding);
      const Var positions = default_position_ids(g, options);
      const Var position_embeds =
          g.embedding(places, g.add(positions, static_cast<double>(kPositionOffset)));
      x = g.add(embedded, position_embeds);
      x = g.dropout(x, c.dropout);
      for (const Layer& layer : layers) x = layer(g, options, x, mask, positions);
      x = norm(g, x);
    }
    head.finish(g, options, x, ids, labels, c.vocabulary, kLossInModelType);
  }
  return g.finish();
}

}  // namespace headroom::model
