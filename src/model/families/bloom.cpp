// BLOOM (transformers' BloomForCausalLM): ALiBi biases in place of position embeddings, and a gelu
// that is an autograd function of its own.
#include "model/families/bloom.h"

#include <string>
#include <vector>

#include "model/blocks/alibi.h"
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
  int64_t vocabulary, hidden, layers, heads;
  double hidden_dropout, attention_dropout;
  bool residual_after_norm, tied;
};

Result<Config> read_config(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  Config c{};
  c.vocabulary = options.vocabulary.value_or(in.size({"vocab_size"}, 250880));
  c.hidden = in.size({"n_embed", "hidden_size"}, 64);
  c.layers = in.size({"n_layer", "num_hidden_layers"}, 2, kLayersMax);
  c.heads = in.size({"n_head", "num_attention_heads"}, 8, kHeadsMax);
  c.hidden_dropout = in.dropout("hidden_dropout", 0, options);
  c.attention_dropout = in.dropout("attention_dropout", 0, options);
  c.residual_after_norm = in.flag("apply_residual_connection_post_layernorm", false);
  c.tied = in.flag("tie_word_embeddings", true);
  in.require(c.hidden % c.heads == 0, "n_head", "the heads do not divide hidden_size");
  in.require(in.size({"pretraining_tp"}, 1) == 1 || !in.flag("slow_but_exact", false),
             "slow_but_exact", "not modelled");
  if (in.error()) return *in.error();
  return c;
}

struct SelfAttention {
  Config c;
  Linear qkv, dense;
  SelfAttention(GraphBuilder& g, const Config& config, const std::string& name)
      : c(config),
        qkv(g, name + ".query_key_value", c.hidden, 3 * c.hidden, true),
        dense(g, name + ".dense", c.hidden, c.hidden, true) {}

  Var part(GraphBuilder& g, const Var& fused, int64_t index) const {
    return g.transpose(g.select(fused, 3, index), 1, 2);
  }

  Attended operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                      const Var& residual, const Var& alibi, const Var& mask) const {
    const int64_t b = options.batch;
    const int64_t s = options.sequence;
    const int64_t head_dim = c.hidden / c.heads;
    const Var fused = qkv(g, x);
    Var query;
    Var key;
    Var value;
    {
      const Var parts = g.view(fused, {b, s, c.heads, 3, head_dim});
      query = part(g, parts, 0);
      key = part(g, parts, 1);
      value = part(g, parts, 2);
    }
    query = g.reshape(query, {b * c.heads, -1, head_dim});
    key = g.transpose(g.reshape(key, {b * c.heads, -1, head_dim}), -1, -2);
    value = g.reshape(value, {b * c.heads, -1, head_dim});
    const Var scores = g.baddbmm(alibi, query, key, kScaled);
    Var weights = g.view(scores, {b, c.heads, s, -1});
    if (mask) weights = g.add(weights, mask);
    Var probabilities = g.to_like(g.softmax(weights, -1, DType::f32), query);
    probabilities = g.dropout(probabilities, c.attention_dropout);
    const Var flat = g.view(probabilities, {b * c.heads, s, -1});
    Var context = g.bmm(flat, value);
    context = g.reshape(g.permute(g.view(context, {b, c.heads, s, head_dim}), {0, 2, 1, 3}),
                        {b, s, c.hidden});
    Var output = dense(g, context);
    output = dropout_add(g, output, residual, c.hidden_dropout);
    return {output, probabilities};
  }

  // 1 / sqrt(head) of baddbmm, whose exact value makes no difference so long as it is not 1.
  static constexpr double kScaled = 0.5;
};

struct Layer {
  Config c;
  std::string name;
  LayerNorm input_norm;
  SelfAttention attention;
  LayerNorm attention_norm;
  Linear in, out;
  Layer(GraphBuilder& g, const Config& config, const std::string& path)
      : c(config),
        name(path),
        input_norm(g, path + ".input_layernorm", c.hidden),
        attention(g, c, path + ".self_attention"),
        attention_norm(g, path + ".post_attention_layernorm", c.hidden),
        in(g, path + ".mlp.dense_h_to_4h", c.hidden, 4 * c.hidden, true),
        out(g, path + ".mlp.dense_4h_to_h", 4 * c.hidden, c.hidden, true) {}

  Var mlp(GraphBuilder& g, const Var& input, const Var& residual) const {
    RegionScope region(g, RegionKind::mlp, name + ".mlp", {&input, &residual});
    const Var x = g.gelu_bloom(in(g, input));
    const Var fed_forward = out(g, x);
    Var output = dropout_add(g, fed_forward, residual, c.hidden_dropout);
    region.leave({&output});
    return output;
  }

  // Hidden states, and the attention weights that it returns beside them.
  Attended operator()(GraphBuilder& g, const BuildOptions& options, const Var& input,
                      const Var& alibi, const Var& mask) const {
    RegionScope region(g, RegionKind::layer, name, {&input, &alibi, &mask});
    Var normed = input_norm(g, input);
    Var residual = c.residual_after_norm ? normed : input;
    Attended attended;
    {
      RegionScope inner(g, RegionKind::attention, name + ".self_attention", {&normed});
      attended = attention(g, options, normed, residual, alibi, mask);
      inner.leave({&attended.output});
    }
    normed = attention_norm(g, attended.output);
    residual = c.residual_after_norm ? normed : attended.output;
    Var output = mlp(g, normed, residual);
    region.leave({&output, &attended.weights});
    return {output, attended.weights};
  }
};

}  // namespace

Result<Graph> build_bloom(const text::JsonView& json, const BuildOptions& requested) {
  BuildOptions options = requested;
  options.attention = Attention::eager;  // the only one it has
  HEADROOM_ASSIGN(const Config c, read_config(json, options));
  GraphBuilder g;
  {
    const Var tokens = g.parameter("transformer.word_embeddings.weight", {c.vocabulary, c.hidden},
                                   ParameterRole::embedding);
    const LayerNorm embedding_norm(g, "transformer.word_embeddings_layernorm", c.hidden);
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
      x = embedding_norm(g, embedded);
      const Var slopes = alibi_slopes(g, c.heads);
      Var alibi = g.mul(g.view(slopes, {c.heads, 1, 1}), g.arange(options.sequence));
      alibi = g.to_like(g.repeat(alibi, {options.batch, 1, 1}), x);
      const Var mask = causal_mask(g, options, embedded, {});
      Attended outputs;  // Python's tuple, which the next layer's replaces
      for (const Layer& layer : layers) {
        outputs = layer(g, options, x, alibi, mask);
        x = outputs.output;
      }
      x = norm(g, x);
    }
    head.finish(g, options, x, ids, labels, c.vocabulary, kLossInModelType);
  }
  return g.finish();
}

}  // namespace headroom::model
