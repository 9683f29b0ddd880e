// OPT (transformers' OPTForCausalLM).
#include "model/families/opt.h"

#include <optional>
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
  int64_t vocabulary, positions, hidden, embedded, inner, layers, heads;
  double dropout, attention_dropout;
  Activation activation;
  bool norm_before, final_norm, bias, affine, tied;
};

// The first two rows of the position embedding stand for padding.
constexpr int64_t kPositionOffset = 2;

Result<Config> read_config(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  Config c{};
  c.vocabulary = options.vocabulary.value_or(in.size({"vocab_size"}, 50272));
  c.positions = in.size({"max_position_embeddings"}, 2048) + kPositionOffset;
  c.hidden = in.size({"hidden_size"}, 768);
  c.embedded = in.size({"word_embed_proj_dim"}, c.hidden);
  c.inner = in.size({"ffn_dim"}, 3072);
  c.layers = in.size({"num_hidden_layers"}, 12, kLayersMax);
  c.heads = in.size({"num_attention_heads"}, 12, kHeadsMax);
  c.dropout = in.dropout("dropout", 0.1, options);
  c.attention_dropout = in.dropout("attention_dropout", 0, options);
  c.activation = in.activation("activation_function", Activation::relu);
  c.norm_before = in.flag("do_layer_norm_before", true);
  c.final_norm = c.norm_before && !in.flag("_remove_final_layer_norm", false);
  c.bias = in.flag("enable_bias", true);
  c.affine = in.flag("layer_norm_elementwise_affine", true);
  c.tied = in.flag("tie_word_embeddings", true);
  in.require_positions(options, c.positions - kPositionOffset);
  in.require(c.hidden % c.heads == 0, "num_attention_heads", "the heads do not divide hidden_size");
  if (in.error()) return *in.error();
  return c;
}

LayerNorm make_norm(GraphBuilder& g, const Config& c, const std::string& name) {
  return c.affine ? LayerNorm(g, name, c.hidden) : LayerNorm();
}

struct SelfAttention {
  Config c;
  Linear k, v, q, out;
  SelfAttention(GraphBuilder& g, const Config& config, const std::string& name)
      : c(config),
        k(g, name + ".k_proj", c.hidden, c.hidden, c.bias),
        v(g, name + ".v_proj", c.hidden, c.hidden, c.bias),
        q(g, name + ".q_proj", c.hidden, c.hidden, c.bias),
        out(g, name + ".out_proj", c.hidden, c.hidden, c.bias) {}

  Attended operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                      const Var& mask) const {
    const int64_t b = options.batch;
    const int64_t s = options.sequence;
    const int64_t head_dim = c.hidden / c.heads;
    Var query = g.mul(q(g, x), 1.0);  // scaled before the heads are split
    query = g.transpose(g.view(query, {b, -1, c.heads, head_dim}), 1, 2);
    Var key = k(g, x);
    Var value = v(g, x);
    key = g.transpose(g.view(key, {b, -1, c.heads, head_dim}), 1, 2);
    value = g.transpose(g.view(value, {b, -1, c.heads, head_dim}), 1, 2);
    const AttentionShape shape{b, s, c.heads, c.heads, head_dim, c.attention_dropout, true};
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
        attention_norm(make_norm(g, c, path + ".self_attn_layer_norm")),
        in(g, path + ".fc1", c.hidden, c.inner, c.bias),
        out(g, path + ".fc2", c.inner, c.hidden, c.bias),
        final_norm(make_norm(g, c, path + ".final_layer_norm")) {}

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& input, const Var& mask,
                 const Var& positions) const {
    RegionScope region(g, RegionKind::layer, name, {&input, &mask, &positions});
    Var residual = input;
    Var x = c.norm_before ? attention_norm(g, input) : input;
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
    if (!c.norm_before) x = attention_norm(g, x);
    x = g.reshape(x, {-1, c.hidden});
    residual = x;
    if (c.norm_before) x = final_norm(g, x);
    x = in(g, x);
    x = activate(g, c.activation, x);
    x = out(g, x);
    x = g.dropout(x, c.dropout);
    x = g.view(g.add(residual, x), {options.batch, options.sequence, c.hidden});
    if (!c.norm_before) x = final_norm(g, x);
    region.leave({&x});
    return x;
  }
};

// Position ids from a mask of ones in float32, as it makes one where none is passed.
Var position_ids(GraphBuilder& g, const BuildOptions& options, const Var& ones) {
  Var ids = g.cumsum(ones, 1);
  ids = g.to(g.add(g.mul(ids, ones), -1.0), DType::i64);
  return g.slice(ids, 1, 0, options.sequence);
}

}  // namespace

Result<Graph> build_opt(const text::JsonView& json, const BuildOptions& options) {
  HEADROOM_ASSIGN(const Config c, read_config(json, options));
  GraphBuilder g;
  {
    const std::string path = "model.decoder.";
    const Var tokens = g.parameter(path + "embed_tokens.weight", {c.vocabulary, c.embedded},
                                   ParameterRole::embedding);
    const Var places = g.parameter(path + "embed_positions.weight", {c.positions, c.hidden},
                                   ParameterRole::embedding);
    std::optional<Linear> project_in;
    std::optional<Linear> project_out;
    if (c.embedded != c.hidden) {
      project_out.emplace(g, path + "project_out", c.hidden, c.embedded, false);
      project_in.emplace(g, path + "project_in", c.embedded, c.hidden, false);
    }
    LayerNorm norm;
    if (c.final_norm) norm = make_norm(g, c, path + "final_layer_norm");
    std::vector<Layer> layers;
    for (int64_t i = 0; i < c.layers; ++i) {
      layers.emplace_back(g, c, path + "layers." + std::to_string(i));
    }
    const LmHead head(g, options, "lm_head", c.vocabulary, c.embedded, c.tied ? tokens : Var());
    const Var ids = g.input("input_ids", {options.batch, options.sequence}, DType::i64);
    const Var labels = labels_input(g, options);

    Var x;
    {
      Var embedded = g.embedding(tokens, ids);
      const Var ones = g.full({options.batch, options.sequence}, DType::f32);
      const Var positions = position_ids(g, options, ones);
      const Var mask = causal_mask(g, options, embedded, {});
      const Var position_embeds =
          g.embedding(places, g.add(positions, static_cast<double>(kPositionOffset)));
      if (project_in) embedded = (*project_in)(g, embedded);
      x = g.add(embedded, position_embeds);
      for (const Layer& layer : layers) x = layer(g, options, x, mask, positions);
      if (c.final_norm) x = norm(g, x);
      if (project_out) x = (*project_out)(g, x);
    }
    head.finish(g, options, x, ids, labels, c.vocabulary, kLossInModelType);
  }
  return g.finish();
}

}  // namespace headroom::model
