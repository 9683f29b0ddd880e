#include "model/blocks/cache.h"

#include <array>
#include <string>
#include <tuple>

namespace headroom::model {

namespace {

Var appended(GraphBuilder& g, const BuildOptions& options, const AttentionShape& s,
             const std::string& name, const Var& fresh) {
  Var all;
  if (options.past == 0) {
    // The cache begins as a tensor of no elements, and the first update copies beside it.
    const std::array<Var, 1> parts{fresh};
    all = g.cat(parts, -2);
  } else {
    const Var past = g.input(name, {s.batch, s.kv_heads, options.past, s.head_dim}, std::nullopt);
    const std::array<Var, 2> parts{past, fresh};
    all = g.cat(parts, -2);
  }
  g.keep(all);
  return all;
}

}  // namespace

std::pair<Var, Var> update_cache(GraphBuilder& g, const BuildOptions& options,
                                 const AttentionShape& shape, Var key, Var value) {
  if (!options.use_cache) return {std::move(key), std::move(value)};
  const std::string layer = "past_key_values." + std::to_string(g.next_cache_layer());
  Var all_keys = appended(g, options, shape, layer + ".key", key);
  return {all_keys, appended(g, options, shape, layer + ".value", value)};
}

void rebind_to_cache(GraphBuilder& g, const BuildOptions& options, AttentionShape& shape, Var& key,
                     Var& value) {
  if (!options.use_cache) return;
  std::tie(key, value) = update_cache(g, options, shape, std::move(key), std::move(value));
  shape.is_cached = true;
}

}  // namespace headroom::model
