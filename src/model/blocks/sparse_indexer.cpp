#include "model/blocks/sparse_indexer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "model/blocks/cache.h"
#include "model/blocks/rotary.h"

namespace headroom::model {

namespace {

int64_t keys_of(const BuildOptions& options) {
  return options.sequence + (options.use_cache ? options.past : 0);
}

}  // namespace

SparseIndexer::SparseIndexer(GraphBuilder& g, const SparseIndexerShape& s, const std::string& name)
    : s_(s),
      name_(name),
      query_(g, name + ".wq_b", s.query_rank, s.heads * s.head_dim, false),
      key_(g, name + ".wk", s.hidden, s.head_dim, false),
      key_norm_(g, name + ".k_norm", s.head_dim),
      weights_(g, name + ".weights_proj", s.hidden, s.heads, false) {}

Var SparseIndexer::operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                              const Var& latent_query, const LayerInputs& in,
                              const std::string& cache_name) const {
  RegionScope region(g, RegionKind::other, name_, {&x, &latent_query});
  region.set_no_grad();
  const int64_t b = options.batch;
  const int64_t rest = s_.head_dim - s_.rope_dim;
  const Var all_masked = g.select(in.mask, 1, 0);
  Var query = g.view(query_(g, latent_query), {b, options.sequence, s_.heads, s_.head_dim});
  const auto query_parts = g.split(query, {s_.rope_dim, rest}, -1);
  Var key = g.unsqueeze(key_norm_(g, key_(g, x)), 2);
  const auto key_parts = g.split(key, {s_.rope_dim, rest}, -1);
  const auto rotate = s_.rotates_halves ? apply_rotary : rotate_interleaved;
  const auto [query_turned, key_turned] =
      rotate(g, query_parts[0], key_parts[0], in.cos, in.sin, s_.rope_dim, /*heads_dim=*/2);
  const auto joined = [&](const Var& turned, const Var& passed) {
    const std::array<Var, 2> parts{turned, passed};
    return g.cat(parts, -1);
  };
  query = joined(query_turned, query_parts[1]);
  key = g.squeeze(joined(key_turned, key_parts[1]), 2);
  if (options.use_cache) {
    key = append_to_cache(g, options, cache_name + ".index_key", key,
                          {b, options.past, s_.head_dim}, 1);
  }
  const Var scored = scores(g, query, key);
  Var weights = g.to(weights_(g, x), DType::f32);
  weights = g.mul(weights, 1.0);
  Var index_scores = g.squeeze(g.matmul(g.unsqueeze(weights, -2), scored), -2);
  index_scores = options.attention == Attention::sdpa
                     ? g.masked_fill(index_scores, g.compare(all_masked))
                     : g.add(index_scores, all_masked);
  Var chosen = g.topk(index_scores, std::min(s_.top_k, keys_of(options)))[1];
  chosen = g.to(chosen, DType::i32);
  region.leave({&chosen});
  return chosen;
}

// [batch, sequence, heads, keys]
Var SparseIndexer::scores(GraphBuilder& g, const Var& query, const Var& key) {
  Var products;
  {
    Var wide = g.to(query, DType::f32);
    products =
        g.matmul(std::move(wide), g.unsqueeze(g.to(g.transpose(key, -1, -2), DType::f32), 1));
  }
  return g.relu(g.mul(std::move(products), 1.0));
}

Var mask_of_others(GraphBuilder& g, const BuildOptions& options, const Var& chosen) {
  Var others = g.full({options.batch, options.sequence, keys_of(options)}, DType::boolean);
  others = g.scatter(std::move(others), -1, g.to(chosen, DType::i64));
  return g.unsqueeze(others, 1);
}

}  // namespace headroom::model
