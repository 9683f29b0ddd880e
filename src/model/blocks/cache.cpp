#include "model/blocks/cache.h"

#include <array>
#include <string>
#include <tuple>

namespace headroom::model {

std::string next_cache_name(GraphBuilder& g) {
  return "past_key_values." + std::to_string(g.next_cache_layer());
}

Var append_to_cache(GraphBuilder& g, const BuildOptions& options, const std::string& name,
                    const Var& fresh, const Dims& past, int dim) {
  Var all;
  if (options.past == 0) {
    // The cache begins as a tensor of no elements, and the first update copies beside it.
    const std::array<Var, 1> parts{fresh};
    all = g.cat(parts, dim);
  } else {
    const std::array<Var, 2> parts{g.input(name, past, std::nullopt), fresh};
    all = g.cat(parts, dim);
  }
  g.keep(all);
  return all;
}

std::pair<Var, Var> update_cache(GraphBuilder& g, const BuildOptions& options,
                                 const AttentionShape& shape, Var key, Var value) {
  if (!options.use_cache) return {std::move(key), std::move(value)};
  const std::string layer = next_cache_name(g);
  const Dims past{shape.batch, shape.kv_heads, options.past, shape.head_dim};
  Var all_keys = append_to_cache(g, options, layer + ".key", key, past, -2);
  return {all_keys, append_to_cache(g, options, layer + ".value", value, past, -2)};
}

Var cached_state(GraphBuilder& g, const std::string& name, const Dims& sizes,
                 std::optional<DType> dtype) {
  Var state = g.input(name, sizes, dtype);
  g.keep(state);
  return state;
}

void begin_cached_state(GraphBuilder& g, const Var& fresh, std::optional<Dims> sizes) {
  const Var state =
      sizes ? g.full_like({sizes->begin(), sizes->end()}, fresh) : g.zeros_like(fresh);
  g.keep(state);
}

void rebind_to_cache(GraphBuilder& g, const BuildOptions& options, AttentionShape& shape, Var& key,
                     Var& value) {
  if (!options.use_cache) return;
  std::tie(key, value) = update_cache(g, options, shape, std::move(key), std::move(value));
  shape.is_cached = true;
}

}  // namespace headroom::model
