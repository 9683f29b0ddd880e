#include "model/blocks/rotary.h"

#include <array>
#include <utility>

namespace headroom::model {

namespace {

// What each position is turned by: one angle a frequency.
Var angles_of(GraphBuilder& g, const Var& inverse_frequencies, const Var& position_ids) {
  const Var positions = g.unsqueeze(position_ids, -1);
  return g.mul(g.to(positions, DType::f32), inverse_frequencies);
}

Var twice_in_a_row(GraphBuilder& g, const Var& x) {
  const std::array<Var, 2> halves{x, x};
  return g.cat(halves, -1);
}

// In float32.
std::pair<Var, Var> cosines_and_sines(GraphBuilder& g, const Var& angles) {
  Var cos = g.mul(g.cos(angles), 1.0);
  return {cos, g.mul(g.sin(angles), 1.0)};
}

std::pair<Var, Var> in_type_of(GraphBuilder& g, const std::pair<Var, Var>& tables,
                               const Var& like) {
  Var cos = g.to_like(tables.first, like);
  return {cos, g.to_like(tables.second, like)};
}

// Tables of several axes become one, the sines' first.
template <typename Recompose>
std::pair<Var, Var> recomposed_tables(GraphBuilder& g, const Var& angles, const Var& like,
                                      const Recompose& recompose) {
  auto [cos, sin] = cosines_and_sines(g, angles);
  sin = recompose(sin);
  cos = recompose(cos);
  return in_type_of(g, {cos, sin}, like);
}

}  // namespace

std::pair<Var, Var> rotary_tables(GraphBuilder& g, const Var& inverse_frequencies,
                                  const Var& position_ids, const Var& like) {
  const Var frequencies = angles_of(g, inverse_frequencies, position_ids);
  const Var angles = twice_in_a_row(g, frequencies);
  return in_type_of(g, cosines_and_sines(g, angles), like);
}

std::pair<Var, Var> rotary_tables_from_host(GraphBuilder& g, const Var& inverse_frequencies,
                                            const Var& position_ids, const Var& like) {
  const Var length = g.add(g.amax(position_ids, -1, false), 0.0);
  Var frequencies;
  {
    const Var positions = g.unsqueeze(position_ids, -1);
    Var wide = g.to(positions, DType::f32);
    frequencies = g.mul(std::move(wide), g.clone(inverse_frequencies));
  }
  const Var angles = twice_in_a_row(g, frequencies);
  return in_type_of(g, cosines_and_sines(g, angles), like);
}

std::pair<Var, Var> wide_rotary_tables(GraphBuilder& g, const Var& inverse_frequencies,
                                       const Var& position_ids) {
  const Var frequencies = angles_of(g, inverse_frequencies, position_ids);
  const Var angles = twice_in_a_row(g, frequencies);
  return cosines_and_sines(g, angles);
}

std::pair<Var, Var> repeated_rotary_tables(GraphBuilder& g, const Var& inverse_frequencies,
                                           const Var& position_ids, const Var& like, int64_t dims) {
  const Var frequencies = angles_of(g, inverse_frequencies, position_ids);
  const Var pairs = g.expand(g.unsqueeze(frequencies, -1), {-1, -1, dims / 2, 2});
  const Var angles = g.reshape(pairs, {1, -1, dims});
  return in_type_of(g, cosines_and_sines(g, angles), like);
}

std::pair<Var, Var> half_rotary_tables(GraphBuilder& g, const Var& inverse_frequencies,
                                       const Var& position_ids, const Var& like) {
  const Var angles = angles_of(g, inverse_frequencies, position_ids);
  return in_type_of(g, cosines_and_sines(g, angles), like);
}

std::pair<Var, Var> rotary_tables_by_axis(GraphBuilder& g, const Var& inverse_frequencies,
                                          const Var& position_ids, const Var& like) {
  const Var angles = angles_of(g, inverse_frequencies, position_ids);
  // The second and third axis are written into the first, in place; that takes no memory.
  return recomposed_tables(g, angles, like, [&](const Var& by_axis) {
    return twice_in_a_row(g, g.select(by_axis, 0, 0));
  });
}

std::pair<Var, Var> rotary_tables_by_section(GraphBuilder& g, const Var& inverse_frequencies,
                                             const Var& position_ids, const Var& like) {
  const Var angles = angles_of(g, inverse_frequencies, position_ids);
  // Where the sections are cut makes no difference to what is joined.
  return recomposed_tables(g, angles, like, [&](const Var& by_axis) {
    const std::array<Var, 1> sections{g.select(by_axis, 0, 0)};
    return twice_in_a_row(g, g.cat(sections, -1));
  });
}

Var complex_rotary_table(GraphBuilder& g, const Var& inverse_frequencies, const Var& position_ids,
                         int64_t sequence, int64_t dims) {
  const Var angles = angles_of(g, inverse_frequencies, position_ids);
  const Var table = g.polar(g.full({1, sequence, dims / 2}, DType::f32), angles);
  return g.mul(table, 1.0);
}

namespace {

Var rotate_half(GraphBuilder& g, const Var& x, int64_t dims) {
  const Var first = g.slice(x, -1, 0, dims / 2);
  const Var second = g.slice(x, -1, dims / 2, dims);
  const std::array<Var, 2> parts{g.neg(second), first};
  return g.cat(parts, -1);
}

Var rotated(GraphBuilder& g, const Var& x, const Var& cos, const Var& sin, int64_t dims) {
  const Var straight = g.mul(x, cos);
  return g.add(straight, g.mul(rotate_half(g, x, dims), sin));
}

}  // namespace

std::pair<Var, Var> apply_rotary(GraphBuilder& g, const Var& query, const Var& key, const Var& cos,
                                 const Var& sin, int64_t dims, int heads_dim) {
  const Var cos_heads = g.unsqueeze(cos, heads_dim);
  const Var sin_heads = g.unsqueeze(sin, heads_dim);
  Var rotated_query = rotated(g, query, cos_heads, sin_heads, dims);
  return {rotated_query, rotated(g, key, cos_heads, sin_heads, dims)};
}

Var apply_rotary_to_one(GraphBuilder& g, const Var& x, const Var& cos, const Var& sin, int64_t dims,
                        int heads_dim) {
  return rotated(g, x, g.unsqueeze(cos, heads_dim), g.unsqueeze(sin, heads_dim), dims);
}

std::pair<Var, Var> apply_partial_rotary(GraphBuilder& g, const Var& query, const Var& key,
                                         const Var& cos, const Var& sin, int64_t dims,
                                         int64_t head) {
  const Var cos_heads = g.unsqueeze(cos, 1);
  const Var sin_heads = g.unsqueeze(sin, 1);
  const Var query_turning = g.slice(query, -1, 0, dims);
  const Var query_rest = g.slice(query, -1, dims, head);
  const Var key_turning = g.slice(key, -1, 0, dims);
  const Var key_rest = g.slice(key, -1, dims, head);
  const auto joined = [&](const Var& turning, const Var& rest) {
    const std::array<Var, 2> parts{rotated(g, turning, cos_heads, sin_heads, dims), rest};
    return g.cat(parts, -1);
  };
  Var query_out = joined(query_turning, query_rest);
  return {std::move(query_out), joined(key_turning, key_rest)};
}

std::pair<Var, Var> rotate_then_join(GraphBuilder& g, const Var& query, const Var& key,
                                     const Var& cos_in, const Var& sin_in, int64_t dims,
                                     int64_t head, std::vector<Var>* held) {
  const Var cos = g.unsqueeze(cos_in, 1);
  const Var sin = g.unsqueeze(sin_in, 1);
  std::array<Var, 2> turn;
  std::array<Var, 2> pass;
  for (size_t i = 0; i < 2; ++i) {
    const Var& whole = i == 0 ? query : key;
    turn[i] = g.slice(whole, -1, 0, dims);
    pass[i] = g.slice(whole, -1, dims, head);
  }
  std::array<Var, 2> out;
  for (size_t i = 0; i < 2; ++i) out[i] = rotated(g, turn[i], cos, sin, dims);
  if (held != nullptr) *held = {out[0], out[1], pass[0], pass[1]};
  for (size_t i = 0; i < 2; ++i) {
    const std::array<Var, 2> parts{out[i], pass[i]};
    out[i] = g.cat(parts, -1);
  }
  return {out[0], out[1]};
}

namespace {

// x.repeat_interleave(2, -1) of the first half of [1, 1, sequence, dims].
Var doubled_half(GraphBuilder& g, const Var& x, int64_t dims) {
  const Var half = g.slice(x, -1, 0, dims / 2);
  const Var pairs = g.expand(g.unsqueeze(half, -1), {-1, -1, -1, dims / 2, 2});
  return g.reshape(pairs, {1, 1, -1, dims});
}

Var rotate_neighbours(GraphBuilder& g, const BuildOptions& options, const Var& x, int64_t dims) {
  const Var even = g.slice(x, -1, 0, dims, 2);
  const Var odd = g.slice(x, -1, 1, dims, 2);
  Var turned;
  {
    const std::array<Var, 2> parts{g.neg(odd), even};
    turned = g.stack(parts, -1);
  }
  return g.reshape(std::move(turned), {options.batch, -1, options.sequence, dims});
}

}  // namespace

std::pair<Var, Var> apply_partial_rotary_to_pairs(GraphBuilder& g, const BuildOptions& options,
                                                  const Var& query, const Var& key,
                                                  const Var& cos_in, const Var& sin_in,
                                                  int64_t dims, int64_t head) {
  Var cos = g.unsqueeze(cos_in, 1);
  Var sin = g.unsqueeze(sin_in, 1);
  cos = doubled_half(g, cos, dims);
  sin = doubled_half(g, sin, dims);
  const Var query_turning = g.slice(query, -1, 0, dims);
  const Var query_rest = g.slice(query, -1, dims, head);
  const Var key_turning = g.slice(key, -1, 0, dims);
  const Var key_rest = g.slice(key, -1, dims, head);
  const auto turned = [&](const Var& x) {
    Var straight = g.mul(x, cos);
    return g.add(std::move(straight), g.mul(rotate_neighbours(g, options, x, dims), sin));
  };
  const auto joined = [&](const Var& x, const Var& rest) {
    const std::array<Var, 2> parts{x, rest};
    return g.cat(parts, -1);
  };
  Var query_out = turned(query_turning);
  Var key_out = turned(key_turning);
  query_out = joined(query_out, query_rest);
  key_out = joined(key_out, key_rest);
  return {query_out, key_out};
}

std::pair<Var, Var> apply_rotary_to_neighbours(GraphBuilder& g, const BuildOptions& options,
                                               const Var& query_in, const Var& key_in,
                                               const Var& cos_in, const Var& sin_in, int64_t dims,
                                               const PairRotation& rotation) {
  using Widening = PairRotation::Widening;
  Var query = query_in;
  Var key = key_in;
  if (rotation.widening == Widening::of_operands) {
    query = g.to(query, DType::f32);
    key = g.to(key, DType::f32);
  }
  Var cos = g.unsqueeze(cos_in, 1);
  Var sin = g.unsqueeze(sin_in, 1);
  if (rotation.repeats_tables) {
    cos = doubled_half(g, cos, dims);
    sin = doubled_half(g, sin, dims);
  }
  const auto times = [&](Var factor, const Var& table) {
    if (rotation.widening == Widening::by_factor) factor = g.to(std::move(factor), DType::f32);
    return g.mul(std::move(factor), table);
  };
  const auto turned = [&](const Var& x) {
    Var straight = times(x, cos);
    Var across = times(rotate_neighbours(g, options, x, dims), sin);
    return g.add(std::move(straight), std::move(across));
  };
  Var query_out = turned(query);
  Var key_out = turned(key);
  if (rotation.widening == Widening::none) return {query_out, key_out};
  Var narrowed = g.to_like(query_out, query_in);
  return {narrowed, g.to_like(key_out, key_in)};
}

namespace {

// repeat_interleave(x[:, :, None, :], 2, 3)
Var doubled(GraphBuilder& g, const Var& x, int64_t dims) {
  const Var pairs = g.expand(g.unsqueeze(g.unsqueeze(x, 2), -1), {-1, -1, -1, dims / 2, 2});
  return g.view(g.reshape(pairs, {-1, dims}), {1, -1, 1, dims});
}

Var rotate_pairs(GraphBuilder& g, const Var& x, const std::vector<int64_t>& sizes) {
  const Var even = g.slice(x, -1, 0, sizes.back(), 2);
  const Var odd = g.slice(x, -1, 1, sizes.back(), 2);
  Var turned;
  {
    const std::array<Var, 2> parts{g.neg(odd), even};
    turned = g.stack(parts, -1);
  }
  return g.view(std::move(turned), sizes);
}

}  // namespace

Var apply_rotary_to_pairs(GraphBuilder& g, const Var& x, const Var& sin_in, const Var& cos_in,
                          const std::vector<int64_t>& sizes) {
  const Var sin = doubled(g, sin_in, sizes.back());
  const Var cos = doubled(g, cos_in, sizes.back());
  Var straight = g.mul(x, cos);
  return g.add(std::move(straight), g.mul(rotate_pairs(g, x, sizes), sin));
}

namespace {

Var turned_pairs(GraphBuilder& g, const Var& even, const Var& odd, const Var& cos, const Var& sin) {
  Var straight = g.mul(even, cos);
  const Var first = g.sub(std::move(straight), g.mul(odd, sin));
  straight = g.mul(odd, cos);
  const Var second = g.add(std::move(straight), g.mul(even, sin));
  const std::array<Var, 2> parts{first, second};
  return g.cat(parts, -1);
}

}  // namespace

std::pair<Var, Var> rotate_interleaved(GraphBuilder& g, const Var& query, const Var& key,
                                       const Var& cos_in, const Var& sin_in, int64_t dims,
                                       int heads_dim) {
  const Var cos = g.unsqueeze(g.slice(cos_in, -1, 0, dims / 2), heads_dim);
  const Var sin = g.unsqueeze(g.slice(sin_in, -1, 0, dims / 2), heads_dim);
  const Var query_even = g.slice(query, -1, 0, dims, 2);
  const Var query_odd = g.slice(query, -1, 1, dims, 2);
  const Var key_even = g.slice(key, -1, 0, dims, 2);
  const Var key_odd = g.slice(key, -1, 1, dims, 2);
  Var turned = turned_pairs(g, query_even, query_odd, cos, sin);
  return {turned, turned_pairs(g, key_even, key_odd, cos, sin)};
}

}  // namespace headroom::model
