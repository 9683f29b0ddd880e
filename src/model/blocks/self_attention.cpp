#include "model/blocks/self_attention.h"
#include "model/blocks/cache.h"

#include <array>
#include <tuple>
#include <utility>

#include "model/blocks/rotary.h"

namespace headroom::model {

namespace {

Var turned_halves(GraphBuilder& g, const Var& x, const Var& cos, const Var& sin, int64_t dims) {
  const auto halves = g.split(x, {dims / 2, dims / 2}, -1);
  Var straight = g.mul(halves[0], cos);
  const Var first = g.sub(std::move(straight), g.mul(halves[1], sin));
  straight = g.mul(halves[1], cos);
  const Var second = g.add(std::move(straight), g.mul(halves[0], sin));
  const std::array<Var, 2> parts{first, second};
  return g.cat(parts, -1);
}

std::pair<Var, Var> apply_half_tables(GraphBuilder& g, const Var& query, const Var& key,
                                      const LayerInputs& inputs, int64_t dims) {
  const Var cos = g.unsqueeze(inputs.cos, 1);
  const Var sin = g.unsqueeze(inputs.sin, 1);
  Var turned_query = turned_halves(g, query, cos, sin, dims);
  return {turned_query, turned_halves(g, key, cos, sin, dims)};
}

}  // namespace

SelfAttention::SelfAttention(GraphBuilder& g, const SelfAttentionShape& s, const std::string& name)
    : shape_(s),
      sinks_(s.sinks ? g.parameter(name + ".sinks", {s.heads}, ParameterRole::other) : Var()),
      q_(g, name + ".q_proj", s.hidden, s.heads * s.head_dim, s.qkv_bias),
      k_(g, name + ".k_proj", s.hidden, s.kv_heads * s.head_dim, s.qkv_bias),
      v_(g, name + ".v_proj", s.hidden, s.kv_heads * s.head_dim, s.qkv_bias),
      o_(g, name + "." + s.output_name, s.heads * s.head_dim, s.hidden, s.output_bias) {
  if (s.norm == HeadNorm::none) return;
  if (s.norm == HeadNorm::layer) {
    q_layer_norms_.emplace_back(g, name + ".q_layernorm", s.head_dim);
    k_layer_norms_.emplace_back(g, name + ".k_layernorm", s.head_dim);
    return;
  }
  if (s.norm == HeadNorm::layers_by_head) {
    const auto declare = [&](std::vector<LayerNorm>& norms, const char* part, int64_t heads) {
      for (int64_t i = 0; i < heads; ++i) {
        norms.emplace_back(g, name + part + ".norms." + std::to_string(i), s.head_dim, false);
      }
    };
    declare(q_layer_norms_, ".q_layernorm", s.heads);
    declare(k_layer_norms_, ".k_layernorm", s.kv_heads);
    return;
  }
  const bool all = s.norm == HeadNorm::all_heads;
  q_norm_.emplace(g, name + ".q_norm", all ? s.heads * s.head_dim : s.head_dim);
  k_norm_.emplace(g, name + ".k_norm", all ? s.kv_heads * s.head_dim : s.head_dim);
}

// x [batch, heads, sequence, head].
Var SelfAttention::layer_normed(GraphBuilder& g, const std::vector<LayerNorm>& norms,
                                const Var& x) const {
  if (shape_.norm == HeadNorm::layer) return norms[0](g, x);
  const std::vector<Var> heads = g.split(x, std::vector<int64_t>(norms.size(), 1), 1);
  std::vector<Var> normed;
  for (size_t i = 0; i < norms.size(); ++i) normed.push_back(norms[i](g, heads[i]));
  return g.cat(normed, 1);
}

// Queries, keys and values, in the order in which the family's function makes them.
std::array<Var, 3> SelfAttention::projected(GraphBuilder& g, const BuildOptions& options,
                                            const Var& x) const {
  const std::vector<int64_t> heads{options.batch, options.sequence, -1, shape_.head_dim};
  const std::array<const Linear*, 3> linears{&q_, &k_, &v_};
  const std::array<const std::optional<RmsNorm>*, 3> norms{&q_norm_, &k_norm_, &no_norm_};
  const bool views_late = shape_.norm == HeadNorm::all_heads || shape_.projects_first;
  const bool each_in_turn = !views_late && shape_.norm != HeadNorm::each_head_at_last;
  std::array<Var, 3> out;
  for (size_t i = 0; i < 3; ++i) {
    Var y = (*linears[i])(g, x);
    if (shape_.norm == HeadNorm::all_heads && *norms[i]) y = (**norms[i])(g, y);
    if (!views_late) y = g.view(y, heads);
    if (shape_.norm == HeadNorm::each_head && *norms[i]) y = (**norms[i])(g, y);
    if (each_in_turn) y = g.transpose(y, 1, 2);
    out[i] = y;
  }
  if (shape_.clips) {
    for (Var& y : out) y = g.clamp_assign(std::move(y), 2);
  }
  if (!each_in_turn) {
    for (size_t i = 0; i < 3; ++i) {
      if (shape_.norm == HeadNorm::each_head_at_last && *norms[i]) out[i] = (**norms[i])(g, out[i]);
    }
    for (Var& y : out) {
      if (views_late) y = g.view(y, heads);
      y = g.transpose(y, 1, 2);
    }
  }
  if (!q_layer_norms_.empty()) {
    out[0] = layer_normed(g, q_layer_norms_, out[0]);
    out[1] = layer_normed(g, k_layer_norms_, out[1]);
  }
  return out;
}

Attended SelfAttention::operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                                   const LayerInputs& inputs) const {
  const SelfAttentionShape& s = shape_;
  auto [query, key, value] = projected(g, options, x);
  std::vector<Var> parts;
  if (s.sinks) {
    std::tie(query, key) = apply_half_tables(g, query, key, inputs, s.head_dim);
  } else if (s.turns_pairs) {
    std::tie(query, key) = apply_rotary_to_neighbours(g, options, query, key, inputs.cos,
                                                      inputs.sin, s.head_dim, *s.turns_pairs);
  } else if (s.splits_rotary || s.rotary_dims < s.head_dim) {
    std::tie(query, key) = rotate_then_join(g, query, key, inputs.cos, inputs.sin, s.rotary_dims,
                                            s.head_dim, s.keeps_parts ? &parts : nullptr);
  } else {
    std::tie(query, key) = apply_rotary(g, query, key, inputs.cos, inputs.sin, s.head_dim);
  }
  AttentionShape shape{options.batch, options.sequence, s.heads,
                       s.kv_heads,    s.head_dim,       options.training ? s.dropout : 0,
                       true};
  shape.repeats_for_flash = s.repeats_for_flash;
  const bool sees_sinks = s.sinks && options.attention != Attention::flash_attention_2;
  if (!sees_sinks) rebind_to_cache(g, options, shape, key, value);
  // Sinks are known to the eager implementation and to kernels of their own; SDPA has none.
  Attended attended = sees_sinks ? attend_with_sinks(g, shape, query, key, value, inputs.mask)
                                 : attend(g, options, shape, query, key, value, inputs.mask);
  attended.output = g.contiguous(g.reshape(attended.output, {options.batch, options.sequence, -1}));
  attended.output = o_(g, attended.output);
  return attended;
}

Attended SelfAttention::attend_with_sinks(GraphBuilder& g, const AttentionShape& s,
                                          const Var& query, const Var& key_in, const Var& value_in,
                                          const Var& mask) const {
  const Var key = repeat_heads(g, s, key_in);
  const Var value = repeat_heads(g, s, value_in);
  Var weights = g.mul(g.matmul(query, g.transpose(key, 2, 3)), 1.0);
  if (mask) weights = g.add(weights, mask);
  const Var sinks = g.expand(g.reshape(sinks_, {1, -1, 1, 1}), {s.batch, -1, s.sequence, -1});
  Var logits;
  {
    const std::array<Var, 2> parts{weights, sinks};
    logits = g.cat(parts, -1);
  }
  {
    const Var largest = g.max(logits, -1, true)[0];
    logits = g.sub(logits, largest);
  }
  const Var probabilities = g.softmax(logits, -1);
  const Var scores = g.slice(probabilities, -1, 0, s.sequence);
  weights = g.to_like(g.dropout(scores, s.dropout), value);
  Var output = g.matmul(weights, value);
  output = g.contiguous(g.transpose(output, 1, 2));
  return {output, weights};
}

}  // namespace headroom::model
