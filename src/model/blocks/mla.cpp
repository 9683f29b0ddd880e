#include "model/blocks/mla.h"

#include <array>
#include <tuple>
#include <utility>

#include "model/blocks/cache.h"
#include "model/blocks/rotary.h"

namespace headroom::model {

namespace {

Var as_complex(GraphBuilder& g, const Var& x, std::vector<int64_t> sizes) {
  return g.view_as_complex(g.reshape(g.to(x, DType::f32), std::move(sizes)));
}

std::pair<Var, Var> apply_complex(GraphBuilder& g, const BuildOptions& options, const Var& query,
                                  const Var& key, const Var& table_in, int64_t heads,
                                  int64_t dims) {
  const int64_t b = options.batch;
  const int64_t s = options.sequence;
  const Var query_pairs = as_complex(g, query, {b, heads, s, -1, 2});
  const Var key_pairs = as_complex(g, key, {b, 1, s, -1, 2});
  const Var table = g.unsqueeze(table_in, 1);
  const auto turned = [&](const Var& pairs, int64_t head_count, const Var& like) {
    Var real = g.reshape(g.view_as_real(g.mul(pairs, table)), {b, head_count, s, dims});
    return g.to_like(std::move(real), like);
  };
  Var turned_query = turned(query_pairs, heads, query);
  return {turned_query, turned(key_pairs, 1, key)};
}

// As read in this version; when it began since 5.0, which cached keys and values as the heads see
// them, was not looked up.
constexpr op::Version kLatentCache{5, 23};

bool caches_latents(const BuildOptions& options, const LatentAttentionShape& s) {
  return options.use_cache && (s.sparse || options.transformers >= kLatentCache);
}

int64_t cached_latents(const BuildOptions& options, const LatentAttentionShape& s) {
  return caches_latents(options, s) ? options.past : 0;
}

}  // namespace

LatentAttention::LatentAttention(GraphBuilder& g, const LatentAttentionShape& s,
                                 const std::string& name)
    : shape_(s) {
  const int64_t queries = s.heads * (s.nope_dim + s.rope_dim);
  if (s.query_rank) {
    q_a_.emplace(g, name + ".q_a_proj", s.hidden, *s.query_rank, s.bias);
    q_norm_.emplace(g, name + ".q_a_layernorm", *s.query_rank);
    q_b_.emplace(g, name + ".q_b_proj", *s.query_rank, queries, false);
  } else {
    q_.emplace(g, name + ".q_proj", s.hidden, queries, false);
  }
  kv_a_.emplace(g, name + ".kv_a_proj_with_mqa", s.hidden, s.kv_rank + s.rope_dim, s.bias);
  kv_norm_.emplace(g, name + ".kv_a_layernorm", s.kv_rank);
  kv_b_.emplace(g, name + ".kv_b_proj", s.kv_rank, s.heads * (s.nope_dim + s.value_dim), false);
  o_.emplace(g, name + ".o_proj", s.heads * s.value_dim, s.hidden, s.bias);
  if (s.indexer) indexer_.emplace(g, *s.indexer, name + ".indexer");
}

Var LatentAttention::queries(GraphBuilder& g, const Var& x, Var& latent) const {
  if (q_) return (*q_)(g, x);
  latent = (*q_a_)(g, x);
  latent = (*q_norm_)(g, latent);
  return (*q_b_)(g, latent);
}

std::pair<Var, Var> LatentAttention::expanded(GraphBuilder& g, const BuildOptions& options,
                                              const Var& latent, const Var& rotated_key) const {
  const LatentAttentionShape& s = shape_;
  const int64_t keys = options.sequence + cached_latents(options, s);
  const Var both = g.transpose(
      g.view((*kv_b_)(g, latent), {options.batch, keys, -1, s.nope_dim + s.value_dim}), 1, 2);
  const auto parts = g.split(both, {s.nope_dim, s.value_dim}, -1);
  const Var for_all_heads = g.expand(rotated_key, {-1, s.heads, -1, -1});
  const int64_t dims = s.nope_dim + s.rope_dim;
  Var key = g.empty_like({options.batch, s.heads, keys, dims}, both);
  key = g.copy_slice(key, parts[0], -1, 0, s.nope_dim);
  key = g.copy_slice(key, for_all_heads, -1, s.nope_dim, dims);
  return {key, parts[1]};
}

Attended LatentAttention::operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                                     const LayerInputs& inputs) const {
  const LatentAttentionShape& s = shape_;
  const int64_t b = options.batch;
  const int64_t t = options.sequence;
  Var latent_query;
  const Var all_queries =
      g.transpose(g.view(queries(g, x, latent_query), {b, t, -1, s.nope_dim + s.rope_dim}), 1, 2);
  if (!s.sparse) latent_query = Var();
  const auto query_parts = g.split(all_queries, {s.nope_dim, s.rope_dim}, -1);
  Var query_rotary = query_parts[1];
  const Var compressed = (*kv_a_)(g, x);
  Var latent, key_rotary;
  {
    const auto parts = g.split(compressed, {s.kv_rank, s.rope_dim}, -1);
    latent = parts[0];
    key_rotary = parts[1];
  }
  latent = (*kv_norm_)(g, latent);
  latent = g.view(latent, {b, 1, t, s.kv_rank});
  key_rotary = g.view(key_rotary, {b, 1, t, s.rope_dim});
  if (s.rotary == LatentRotary::complex) {
    std::tie(query_rotary, key_rotary) =
        apply_complex(g, options, query_rotary, key_rotary, inputs.cos, s.heads, s.rope_dim);
  } else if (s.rotary == LatentRotary::interleaved) {
    std::tie(query_rotary, key_rotary) =
        rotate_interleaved(g, query_rotary, key_rotary, inputs.cos, inputs.sin, s.rope_dim);
  } else {
    std::tie(query_rotary, key_rotary) =
        apply_rotary(g, query_rotary, key_rotary, inputs.cos, inputs.sin, s.rope_dim);
  }
  std::string cache;
  if (caches_latents(options, s)) {
    cache = next_cache_name(g);
    latent =
        append_to_cache(g, options, cache + ".key", latent, {b, 1, options.past, s.kv_rank}, -2);
    key_rotary = append_to_cache(g, options, cache + ".value", key_rotary,
                                 {b, 1, options.past, s.rope_dim}, -2);
  }
  Var query;
  {
    const std::array<Var, 2> parts{query_parts[0], query_rotary};
    query = g.cat(parts, -1);
  }
  const auto [key, value] = expanded(g, options, latent, key_rotary);
  Var chosen, others, mask = inputs.mask;
  if (s.sparse) {
    chosen = indexer_ ? (*indexer_)(g, options, x, latent_query, inputs, cache) : inputs.carried;
    others = mask_of_others(g, options, chosen);
    mask = options.attention == Attention::sdpa ? g.compare(mask, g.compare(others))
                                                : g.masked_fill(mask, others);
  }
  Attended out = attended(g, options, query, key, value, mask);
  if (s.shares_keys) out.carried = chosen;
  return out;
}

Attended LatentAttention::attended(GraphBuilder& g, const BuildOptions& options, const Var& query,
                                   const Var& key, const Var& value, const Var& mask) const {
  const LatentAttentionShape& s = shape_;
  AttentionShape shape{options.batch, options.sequence,        s.heads,
                       s.heads,       s.nope_dim + s.rope_dim, options.training ? s.dropout : 0,
                       true};
  shape.value_dim = s.value_dim;
  shape.is_cached = caches_latents(options, s);
  Attended out = attend(g, options, shape, query, key, value, mask);
  out.output = g.contiguous(g.reshape(out.output, {options.batch, options.sequence, -1}));
  out.output = (*o_)(g, out.output);
  return out;
}

}  // namespace headroom::model
