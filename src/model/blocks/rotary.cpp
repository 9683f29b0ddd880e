#include "model/blocks/rotary.h"

#include <array>

namespace headroom::model {

std::pair<Var, Var> rotary_tables(GraphBuilder& g, const Var& inverse_frequencies,
                                  const Var& position_ids, const Var& like, int64_t sequence,
                                  int64_t dims) {
  static_cast<void>(sequence);
  static_cast<void>(dims);
  const Var positions = g.unsqueeze(position_ids, -1);
  const Var frequencies = g.mul(g.to(positions, DType::f32), inverse_frequencies);
  const std::array<Var, 2> halves{frequencies, frequencies};
  const Var angles = g.cat(halves, -1);
  const Var cos = g.mul(g.cos(angles), 1.0);
  const Var sin = g.mul(g.sin(angles), 1.0);
  Var cos_out = g.to_like(cos, like);
  return {cos_out, g.to_like(sin, like)};
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
                                 const Var& sin, int64_t dims) {
  const Var cos_heads = g.unsqueeze(cos, 1);
  const Var sin_heads = g.unsqueeze(sin, 1);
  Var rotated_query = rotated(g, query, cos_heads, sin_heads, dims);
  return {rotated_query, rotated(g, key, cos_heads, sin_heads, dims)};
}

}  // namespace headroom::model
