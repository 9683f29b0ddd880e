// GPT-J and CodeGen (transformers' GPTJForCausalLM and CodeGenForCausalLM): attention and
// perceptron side by side on one normalization, rotary positions on the first dimensions of a head,
// scores in float32. CodeGen makes query, value and key in one product, in four interleaved parts.
#include "model/families/gptj.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "model/blocks/attention.h"
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

struct Config {
  int64_t vocabulary, positions, hidden, inner, layers, heads, rotary;
  double embedding_dropout, attention_dropout, residual_dropout;
  Activation activation;
  bool rotary_on_part;  // else on all of a head
  bool fused;           // CodeGen
  bool tied;
};

constexpr int64_t kParts = 4;  // of CodeGen's product: made for four devices once

Result<Config> read_config(const text::JsonView& json, const BuildOptions& options, bool fused) {
  ConfigReader in(json);
  Config c{};
  c.fused = fused;
  c.vocabulary = options.vocabulary.value_or(in.size({"vocab_size"}, 50400));
  c.positions = in.size({"n_positions", "max_position_embeddings"}, 2048);
  c.hidden = in.size({"n_embd", "hidden_size"}, 4096);
  c.inner = in.size({"n_inner"}, 4 * c.hidden, 4 * kSizeMax);
  c.layers = in.size({"n_layer", "num_hidden_layers"}, 28, kLayersMax);
  c.heads = in.size({"n_head", "num_attention_heads"}, 16, kHeadsMax);
  c.rotary = in.size({"rotary_dim"}, 64);
  c.embedding_dropout = in.dropout("embd_pdrop", 0, options);
  c.attention_dropout = in.dropout("attn_pdrop", 0, options);
  c.residual_dropout = in.dropout("resid_pdrop", 0, options);
  c.activation = in.activation("activation_function", Activation::gelu_new);
  c.tied = in.flag("tie_word_embeddings", false);
  in.require_positions(options, c.positions);
  in.require(c.hidden % c.heads == 0, "n_head", "the heads do not divide n_embd");
  in.require(!fused || c.heads % kParts == 0, "n_head", "CodeGen has heads in fours");
  in.require(c.rotary % 2 == 0 && c.rotary <= c.hidden / c.heads, "rotary_dim",
             "not even, or wider than a head");
  if (in.error()) return *in.error();
  return c;
}

// Query, key and value as [batch, sequence, heads, head], value with its heads before the sequence.
struct QueryKeyValue {
  Var query, key, value;
};

struct SelfAttention {
  Config c;
  Linear k, v, q;  // of CodeGen k holds the one product, and the others are empty
  Linear out;
  Var positions_table;
  SelfAttention(GraphBuilder& g, const Config& config, const std::string& name)
      : c(config),
        k(g, name + (c.fused ? ".qkv_proj" : ".k_proj"), c.hidden, (c.fused ? 3 : 1) * c.hidden,
          false),
        v(c.fused ? Linear() : Linear(g, name + ".v_proj", c.hidden, c.hidden, false)),
        q(c.fused ? Linear() : Linear(g, name + ".q_proj", c.hidden, c.hidden, false)),
        out(g, name + ".out_proj", c.hidden, c.hidden, false),
        positions_table(
            g.buffer(name + ".embed_positions", {c.positions, c.rotary}, DType::f32, false)) {}

  [[nodiscard]] std::vector<int64_t> head_sizes(const BuildOptions& options) const {
    return {options.batch, options.sequence, c.heads, c.hidden / c.heads};
  }

  // Also gives what Python keeps beside it: the product as a whole.
  QueryKeyValue project(GraphBuilder& g, const BuildOptions& options, const Var& x) const {
    if (c.fused) return project_fused(g, options, x);
    Var query = q(g, x);
    Var key = k(g, x);
    Var value = v(g, x);
    query = g.view(query, head_sizes(options));
    key = g.view(key, head_sizes(options));
    value = g.permute(g.view(value, head_sizes(options)), {0, 2, 1, 3});
    return {query, key, value};
  }

  QueryKeyValue project_fused(GraphBuilder& g, const BuildOptions& options, const Var& x) const {
    const int64_t head_dim = c.hidden / c.heads;
    const int64_t local = c.hidden / kParts;
    const Var parts = g.view(k(g, x), {options.batch, options.sequence, kParts, -1});
    std::vector<Var> split = g.split(parts, {local, local, local}, -1);
    for (Var& part : split) {
      part = g.reshape(part, {options.batch, options.sequence, kParts, c.heads / kParts, head_dim});
      part = g.reshape(part, head_sizes(options));
    }
    return {split[0], split[2], g.permute(split[1], {0, 2, 1, 3})};
  }

  // sin and cos, [1, sequence, rotary / 2]; GPT-J looks them up in a copy of the table.
  Var sines_and_cosines(GraphBuilder& g, const Var& positions, const Var& like,
                        std::vector<Var>& kept) const {
    if (c.fused) return g.index(positions_table, positions);
    const Var table = g.repeat(positions_table, {1, 1, 1});
    const Var index = g.repeat(g.unsqueeze(positions, -1), {1, 1, c.rotary});
    kept = {table, index};
    return g.to_like(g.gather(table, 1, index), like);
  }

  // Turns the first dimensions of a head.
  Var rotated(GraphBuilder& g, const Var& x, const std::vector<Var>& sin_cos,
              const BuildOptions& options) const {
    const std::vector<int64_t> sizes{options.batch, options.sequence, c.heads, c.rotary};
    return apply_rotary_to_pairs(g, x, sin_cos[0], sin_cos[1], sizes);
  }

  void turn(GraphBuilder& g, const BuildOptions& options, const std::vector<Var>& sin_cos,
            QueryKeyValue& heads, std::vector<Var>& kept) const {
    const int64_t head_dim = c.hidden / c.heads;
    Var key_turned = g.slice(heads.key, -1, 0, c.rotary);
    const Var key_passed = g.slice(heads.key, -1, c.rotary, head_dim);
    Var query_turned = g.slice(heads.query, -1, 0, c.rotary);
    const Var query_passed = g.slice(heads.query, -1, c.rotary, head_dim);
    key_turned = rotated(g, key_turned, sin_cos, options);
    query_turned = rotated(g, query_turned, sin_cos, options);
    heads.key = g.cat(std::array<Var, 2>{key_turned, key_passed}, -1);
    heads.query = g.cat(std::array<Var, 2>{query_turned, query_passed}, -1);
    kept.insert(kept.end(), {key_turned, key_passed, query_turned, query_passed});
  }

  Var scaled_and_masked(GraphBuilder& g, Var& weights, const Var& mask) const {
    if (c.fused) {
      if (mask) weights = g.add(weights, mask);
      weights = g.div(weights, 2.0);
    } else {
      weights = g.div(weights, 2.0);
      if (mask) weights = g.add(weights, mask);
    }
    return {};
  }

  Attended operator()(GraphBuilder& g, const BuildOptions& options, const Var& x, const Var& mask,
                      const Var& positions) const {
    std::vector<Var> kept;
    QueryKeyValue heads = project(g, options, x);
    const Var sincos = sines_and_cosines(g, positions, heads.key, kept);
    const std::vector<Var> sin_cos = g.split(sincos, {c.rotary / 2, c.rotary / 2}, -1);
    turn(g, options, sin_cos, heads, kept);
    const Var key = g.permute(std::move(heads.key), {0, 2, 1, 3});
    const Var query = g.permute(std::move(heads.query), {0, 2, 1, 3});
    Attended attended;
    if (options.attention == Attention::flash_attention_2) {
      const AttentionShape shape{options.batch,      options.sequence,    c.heads, c.heads,
                                 c.hidden / c.heads, c.attention_dropout, true};
      const Var query16 = g.to_like(query, heads.value);
      const Var key16 = g.to_like(key, heads.value);
      attended = attend(g, options, shape, query16, key16, heads.value, mask);
    } else {
      attended =
          attend_in_float32(g, query, key, heads.value, c.attention_dropout,
                            [&](Var& weights) { return scaled_and_masked(g, weights, mask); });
      attended.output = g.contiguous(g.permute(attended.output, {0, 2, 1, 3}));
    }
    attended.output = g.view(attended.output, {options.batch, options.sequence, c.hidden});
    attended.output = out(g, attended.output);
    attended.output = g.dropout(attended.output, c.residual_dropout);
    return attended;
  }
};

struct Layer {
  std::string name;
  LayerNorm norm;
  SelfAttention attention;
  Mlp<Linear> mlp;
  Layer(GraphBuilder& g, const Config& c, const std::string& path)
      : name(path),
        norm(g, path + ".ln_1", c.hidden),
        attention(g, c, path + ".attn"),
        mlp{Linear(g, path + ".mlp.fc_in", c.hidden, c.inner, true),
            Linear(g, path + ".mlp.fc_out", c.inner, c.hidden, true), c.activation,
            c.residual_dropout} {}

  // Hidden states, and the attention weights that it returns beside them.
  Attended operator()(GraphBuilder& g, const BuildOptions& options, const Var& input,
                      const Var& mask, const Var& positions) const {
    RegionScope region(g, RegionKind::layer, name, {&input, &mask, &positions});
    Var x = norm(g, input);
    Attended attended;
    {
      RegionScope inner(g, RegionKind::attention, name + ".attn", {&x});
      attended = attention(g, options, x, mask, positions);
      inner.leave({&attended.output});
    }
    Var fed_forward;
    {
      RegionScope inner(g, RegionKind::mlp, name + ".mlp", {&x});
      fed_forward = mlp(g, options, x);
      inner.leave({&fed_forward});
    }
    x = g.add(g.add(attended.output, fed_forward), input);
    region.leave({&x, &attended.weights});
    return {x, attended.weights};
  }
};

Result<Graph> build(const text::JsonView& json, const BuildOptions& options, bool fused) {
  HEADROOM_ASSIGN(const Config c, read_config(json, options, fused));
  GraphBuilder g;
  {
    const Var tokens =
        g.parameter("transformer.wte.weight", {c.vocabulary, c.hidden}, ParameterRole::embedding);
    std::vector<Layer> layers;
    for (int64_t i = 0; i < c.layers; ++i) {
      layers.emplace_back(g, c, "transformer.h." + std::to_string(i));
    }
    const LayerNorm norm(g, "transformer.ln_f", c.hidden);
    const LmHead head(g, options, "lm_head", c.vocabulary, c.hidden, c.tied ? tokens : Var(), true);
    const Var ids = g.input("input_ids", {options.batch, options.sequence}, DType::i64);
    const Var labels = labels_input(g, options);

    Var x;
    {
      const Var embedded = g.embedding(tokens, ids);
      const Var positions = default_position_ids(g, options);
      const Var mask = causal_mask(g, options, embedded, positions);
      x = g.dropout(embedded, c.embedding_dropout);
      Attended outputs;  // Python's tuple, which the next layer's replaces
      for (const Layer& layer : layers) {
        outputs = layer(g, options, x, mask, positions);
        x = outputs.output;
      }
      x = norm(g, x);
    }
    head.finish(g, options, x, ids, labels, c.vocabulary, kLateFloat32Loss);
  }
  return g.finish();
}

}  // namespace

Result<Graph> build_gptj(const text::JsonView& json, const BuildOptions& options) {
  return build(json, without_sdpa(options), false);
}

Result<Graph> build_codegen(const text::JsonView& json, const BuildOptions& options) {
  BuildOptions eager = options;
  eager.attention = Attention::eager;  // the only one it has
  return build(json, eager, true);
}

}  // namespace headroom::model
