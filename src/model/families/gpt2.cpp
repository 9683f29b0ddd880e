// GPT-2 (transformers' GPT2LMHeadModel).
#include "model/families/gpt2.h"
#include "model/blocks/cache.h"

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
  bool looks_for_padding;
};

Result<Config> read_config(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  Config c{};
  c.vocabulary = options.vocabulary.value_or(in.size({"vocab_size"}, 50257));
  c.positions = in.size({"n_positions", "max_position_embeddings"}, 1024);
  c.hidden = in.size({"n_embd", "hidden_size"}, 768);
  c.inner = in.size({"n_inner"}, 4 * c.hidden, 4 * kSizeMax);
  c.layers = in.size({"n_layer", "num_hidden_layers"}, 12, kLayersMax);
  c.heads = in.size({"n_head", "num_attention_heads"}, 12, kHeadsMax);
  c.embedding_dropout = in.dropout("embd_pdrop", 0.1, options);
  c.attention_dropout = in.dropout("attn_pdrop", 0.1, options);
  c.residual_dropout = in.dropout("resid_pdrop", 0.1, options);
  c.activation = in.activation("activation_function", Activation::gelu_new);
  c.tied = in.flag("tie_word_embeddings", true);
  c.looks_for_padding = json.has("pad_token_id") && !options.attention_mask;
  in.require_positions(options, c.positions);
  in.require(c.hidden % c.heads == 0, "n_head", "the heads do not divide n_embd");
  in.require(!in.flag("add_cross_attention", false), "add_cross_attention",
             "cross attention is not modelled");
  in.require(options.attention != Attention::eager || !in.flag("reorder_and_upcast_attn", false),
             "reorder_and_upcast_attn", "not modelled for eager attention");
  if (in.error()) return *in.error();
  return c;
}

struct SelfAttention {
  Config c;
  Conv1D qkv, projection;
  SelfAttention(GraphBuilder& g, const Config& config, const std::string& name)
      : c(config),
        qkv(g, name + ".c_attn", c.hidden, 3 * c.hidden),
        projection(g, name + ".c_proj", c.hidden, c.hidden) {}

  Attended operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                      const Var& mask) const {
    const int64_t b = options.batch;
    const int64_t s = options.sequence;
    const int64_t head_dim = c.hidden / c.heads;
    std::vector<Var> parts = g.split(qkv(g, options, x), {c.hidden, c.hidden, c.hidden}, 2);
    for (Var& part : parts) part = g.transpose(g.view(part, {b, s, -1, head_dim}), 1, 2);
    AttentionShape shape{b, s, c.heads, c.heads, head_dim, c.attention_dropout, true};
    shape.float32_softmax = false;
    shape.contiguous_output = false;
    rebind_to_cache(g, options, shape, parts[1], parts[2]);
    Attended attended = attend(g, options, shape, parts[0], parts[1], parts[2], mask);
    attended.output = g.contiguous(g.reshape(attended.output, {b, s, -1}));
    attended.output = projection(g, options, attended.output);
    attended.output = g.dropout(attended.output, c.residual_dropout);
    return attended;
  }
};

struct Layer {
  std::string name;
  LayerNorm norm1;
  SelfAttention attention;
  LayerNorm norm2;
  Mlp<Conv1D> mlp;
  Layer(GraphBuilder& g, const Config& c, const std::string& path)
      : name(path),
        norm1(g, path + ".ln_1", c.hidden),
        attention(g, c, path + ".attn"),
        norm2(g, path + ".ln_2", c.hidden),
        mlp{Conv1D(g, path + ".mlp.c_fc", c.hidden, c.inner),
            Conv1D(g, path + ".mlp.c_proj", c.inner, c.hidden), c.activation, c.residual_dropout} {}

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& input, const Var& mask,
                 const Var& positions) const {
    RegionScope region(g, RegionKind::layer, name, {&input, &mask, &positions});
    region.set_positional(2);
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
    region.leave({&x});
    return x;
  }
};

}  // namespace

Result<Graph> build_gpt2(const text::JsonView& json, const BuildOptions& options) {
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
      if (c.looks_for_padding) look_for_padding(g, options, ids);
      const Var embedded = g.embedding(tokens, ids);
      const Var positions = default_position_ids(g, options);
      const Var position_embeds = g.embedding(places, positions);
      x = g.add(embedded, position_embeds);
      const Var mask = causal_mask(g, options, embedded, positions);
      x = g.dropout(x, c.embedding_dropout);
      for (const Layer& layer : layers) x = layer(g, options, x, mask, positions);
      x = norm(g, x);
    }
    head.finish(g, options, x, ids, labels, c.vocabulary, kLossInModelType);
  }
  return g.finish();
}

}  // namespace headroom::model
