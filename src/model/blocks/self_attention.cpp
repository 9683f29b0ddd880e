#include "model/blocks/self_attention.h"

#include <array>
#include <tuple>
#include <utility>

#include "model/blocks/rotary.h"

namespace headroom::model {

namespace {

Var rotated_part(GraphBuilder& g, const Var& x, const Var& cos, const Var& sin, int64_t dims) {
  const Var straight = g.mul(x, cos);
  const Var first = g.slice(x, -1, 0, dims / 2);
  const Var second = g.slice(x, -1, dims / 2, dims);
  Var half;
  {
    const std::array<Var, 2> parts{g.neg(second), first};
    half = g.cat(parts, -1);
  }
  return g.add(straight, g.mul(std::move(half), sin));
}

// The first dims of each head turn, the rest passes; joined when both have turned.
std::pair<Var, Var> rotate_then_join(GraphBuilder& g, const Var& query, const Var& key,
                                     const LayerInputs& inputs, int64_t dims, int64_t head_dim) {
  const Var cos = g.unsqueeze(inputs.cos, 1);
  const Var sin = g.unsqueeze(inputs.sin, 1);
  std::array<Var, 2> turn;
  std::array<Var, 2> pass;
  for (size_t i = 0; i < 2; ++i) {
    const Var& whole = i == 0 ? query : key;
    turn[i] = g.slice(whole, -1, 0, dims);
    pass[i] = g.slice(whole, -1, dims, head_dim);
  }
  std::array<Var, 2> out;
  for (size_t i = 0; i < 2; ++i) out[i] = rotated_part(g, turn[i], cos, sin, dims);
  for (size_t i = 0; i < 2; ++i) {
    const std::array<Var, 2> parts{out[i], pass[i]};
    out[i] = g.cat(parts, -1);
  }
  return {out[0], out[1]};
}

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
      o_(g, name + ".o_proj", s.heads * s.head_dim, s.hidden, s.output_bias) {
  if (s.norm == HeadNorm::none) return;
  const bool all = s.norm == HeadNorm::all_heads;
  q_norm_.emplace(g, name + ".q_norm", all ? s.heads * s.head_dim : s.head_dim);
  k_norm_.emplace(g, name + ".k_norm", all ? s.kv_heads * s.head_dim : s.head_dim);
}

// Queries, keys and values, in the order in which the family's function makes them.
std::array<Var, 3> SelfAttention::projected(GraphBuilder& g, const BuildOptions& options,
                                            const Var& x) const {
  const std::vector<int64_t> heads{options.batch, options.sequence, -1, shape_.head_dim};
  const std::array<const Linear*, 3> linears{&q_, &k_, &v_};
  const std::array<const std::optional<RmsNorm>*, 3> norms{&q_norm_, &k_norm_, &no_norm_};
  const bool each_in_turn = shape_.norm == HeadNorm::none || shape_.norm == HeadNorm::each_head;
  std::array<Var, 3> out;
  for (size_t i = 0; i < 3; ++i) {
    Var y = (*linears[i])(g, x);
    if (shape_.norm == HeadNorm::all_heads && *norms[i]) y = (**norms[i])(g, y);
    if (shape_.norm != HeadNorm::all_heads) y = g.view(y, heads);
    if (shape_.norm == HeadNorm::each_head && *norms[i]) y = (**norms[i])(g, y);
    if (each_in_turn) y = g.transpose(y, 1, 2);
    out[i] = y;
  }
  if (each_in_turn) return out;
  for (size_t i = 0; i < 3; ++i) {
    if (shape_.norm == HeadNorm::each_head_at_last && *norms[i]) out[i] = (**norms[i])(g, out[i]);
  }
  for (Var& y : out) {
    if (shape_.norm == HeadNorm::all_heads) y = g.view(y, heads);
    y = g.transpose(y, 1, 2);
  }
  return out;
}

Attended SelfAttention::operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                                   const LayerInputs& inputs) const {
  const SelfAttentionShape& s = shape_;
  auto [query, key, value] = projected(g, options, x);
  if (s.sinks) {
    std::tie(query, key) = apply_half_tables(g, query, key, inputs, s.head_dim);
  } else if (s.splits_rotary || s.rotary_dims < s.head_dim) {
    std::tie(query, key) = rotate_then_join(g, query, key, inputs, s.rotary_dims, s.head_dim);
  } else {
    std::tie(query, key) = apply_rotary(g, query, key, inputs.cos, inputs.sin, s.head_dim);
  }
  AttentionShape shape{options.batch, options.sequence, s.heads,
                       s.kv_heads,    s.head_dim,       options.training ? s.dropout : 0,
                       true};
  shape.repeats_for_flash = s.repeats_for_flash;
  // Sinks are known to the eager implementation and to kernels of their own; SDPA has none.
  Attended attended = s.sinks && options.attention != Attention::flash_attention_2
                          ? attend_with_sinks(g, shape, query, key, value, inputs.mask)
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
