#include "model/blocks/alibi.h"

#include <array>
#include <bit>

namespace headroom::model {

namespace {

// A power of two tensors takes what a product does.
Var power(GraphBuilder& g, const Var& base, const Var& exponents) { return g.mul(base, exponents); }

}  // namespace

Var alibi_slopes(GraphBuilder& g, int64_t heads, std::vector<Var>* held) {
  const auto closest = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  const Var base = g.full({}, DType::f32);
  const Var powers = g.arange(closest, DType::i32);
  Var slopes = power(g, base, powers);
  if (held != nullptr) held->insert(held->end(), {base, powers});
  if (closest == heads) return slopes;
  const Var extra_base = g.full({}, DType::f32);
  const Var extra_powers = g.arange(heads - closest, DType::i32);
  if (held != nullptr) held->insert(held->end(), {extra_base, extra_powers});
  const std::array<Var, 2> parts{slopes, power(g, extra_base, extra_powers)};
  return g.cat(parts, 0);
}

}  // namespace headroom::model
