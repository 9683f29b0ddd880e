#include "model/blocks/llama4_attention.h"

#include <tuple>
#include <utility>
#include <vector>

#include "model/blocks/cache.h"

namespace headroom::model {

namespace {

// Query and key, [batch, sequence, heads, head]: both are turned before either is cast back.
std::pair<Var, Var> turned(GraphBuilder& g, const BuildOptions& options,
                           const Llama4AttentionShape& s, const Var& query, const Var& key,
                           const Var& table) {
  const std::vector<int64_t> pairs{options.batch, options.sequence, -1, s.head_dim / 2, 2};
  const std::vector<int64_t> heads{options.batch, options.sequence, -1, s.head_dim};
  const auto as_complex = [&](const Var& x) {
    return g.view_as_complex(g.reshape(g.to(x, DType::f32), pairs));
  };
  const auto times_table = [&](const Var& x) {
    return g.reshape(g.view_as_real(g.mul(x, g.unsqueeze(table, 2))), heads);
  };
  const Var query_pairs = as_complex(query);
  const Var key_pairs = as_complex(key);
  const Var query_out = times_table(query_pairs);
  const Var key_out = times_table(key_pairs);
  Var first = g.to_like(query_out, query);
  return {first, g.to_like(key_out, key)};
}

// An RMS norm without a weight.
Var of_length_one(GraphBuilder& g, const Var& x) {
  Var output;
  {
    const Var wide = g.to(x, DType::f32);
    output = g.mul(wide, g.rsqrt(g.add(g.mean(g.pow(wide, 2), {-1}, true), 1e-6)));
  }
  return g.to_like(std::move(output), x);
}

// 1 + scale * log1p(floor((position + 1) / step)), in float32. `positions` stays a variable.
Var temperatures(GraphBuilder& g, const BuildOptions& options, Var& positions) {
  positions = g.add(g.arange(options.sequence), 0.0);
  Var steps = g.div(g.add(g.to(positions, DType::f32), 1.0), 1.0);
  steps = g.floor_divide(std::move(steps), 1.0);
  const Var scales = g.add(g.mul(g.log(std::move(steps)), 1.0), 1.0);
  return g.expand(g.view(scales, {1, options.sequence, 1, 1}),
                  {options.batch, options.sequence, 1, 1});
}

}  // namespace

Llama4Attention::Llama4Attention(GraphBuilder& g, const Llama4AttentionShape& s,
                                 const std::string& name)
    : s_(s),
      q_(g, name + ".q_proj", s.hidden, s.heads * s.head_dim, s.bias),
      k_(g, name + ".k_proj", s.hidden, s.kv_heads * s.head_dim, s.bias),
      v_(g, name + ".v_proj", s.hidden, s.kv_heads * s.head_dim, s.bias),
      o_(g, name + ".o_proj", s.heads * s.head_dim, s.hidden, s.bias) {}

Attended Llama4Attention::operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                                     const LayerInputs& inputs) const {
  const std::vector<int64_t> heads{options.batch, options.sequence, -1, s_.head_dim};
  Var query = g.view(q_(g, x), heads);
  Var key = g.view(k_(g, x), heads);
  Var value = g.transpose(g.view(v_(g, x), heads), 1, 2);
  if (s_.rotates) std::tie(query, key) = turned(g, options, s_, query, key, inputs.cos);
  if (s_.normalizes) {
    query = of_length_one(g, query);
    key = of_length_one(g, key);
  }
  Var positions, scales;
  if (s_.scales_queries) {
    scales = temperatures(g, options, positions);
    Var wide = g.mul(query, scales);
    query = g.to_like(std::move(wide), query);
  }
  query = g.transpose(query, 1, 2);
  key = g.transpose(key, 1, 2);
  AttentionShape shape{options.batch, options.sequence, s_.heads,
                       s_.kv_heads,   s_.head_dim,      options.training ? s_.dropout : 0,
                       true};
  shape.float32_softmax = false;
  rebind_to_cache(g, options, shape, key, value);
  Attended attended = attend(g, options, shape, query, key, value, inputs.mask);
  attended.output = g.contiguous(g.reshape(attended.output, {options.batch, options.sequence, -1}));
  attended.output = o_(g, attended.output);
  return attended;
}

}  // namespace headroom::model
