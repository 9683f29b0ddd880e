#include "model/blocks/lightning_attention.h"

#include <algorithm>
#include <utility>

#include "model/blocks/cache.h"

namespace headroom::model {

LightningAttention::LightningAttention(GraphBuilder& g, const LightningShape& s,
                                       const std::string& name)
    : s_(s),
      norm_(g, name + ".norm", s.heads * s.head_dim),
      qkv_(g, name + ".qkv_proj", s.hidden, 3 * s.heads * s.head_dim, false),
      out_(g, name + ".out_proj", s.heads * s.head_dim, s.hidden, false),
      gate_(g, name + ".output_gate", s.hidden, s.heads * s.head_dim, false) {
  const auto buffer = [&](const char* part, const Dims& shape) {
    return g.buffer(name + part, shape, std::nullopt, true);
  };
  slope_ = buffer(".slope_rate", {s.heads, 1, 1});
  query_decay_ = buffer(".query_decay", {s.heads, s.block, 1});
  key_decay_ = buffer(".key_decay", {s.heads, s.block, 1});
  diagonal_decay_ = buffer(".diagonal_decay", {1, s.heads, s.block, s.block});
}

void LightningAttention::pass_block(GraphBuilder& g, Variables& v, int64_t start,
                                    int64_t end) const {
  const int64_t size = end - start;
  const Var query = g.slice(v.query, 2, start, end);
  const Var key = g.slice(v.key, 2, start, end);
  const Var value = g.slice(v.value, 2, start, end);
  const Var query_decay = g.slice(query_decay_, 1, 0, size);
  const Var key_decay = g.slice(key_decay_, 1, s_.block - size, s_.block);
  const Var between = g.slice(g.slice(diagonal_decay_, 2, 0, size), 3, 0, size);
  v.decay = g.exp(g.mul(g.neg(slope_), 1.0));
  v.within = g.matmul(query, g.transpose(key, -1, -2));
  v.from_tokens = g.matmul(g.mul(v.within, between), value);
  v.from_state = g.matmul(g.mul(query, query_decay), v.state);
  v.output = g.add(v.from_state, v.from_tokens);
  v.outputs.push_back(v.output);
  v.update = g.matmul(g.transpose(g.mul(key, key_decay), -1, -2), value);
  v.state = g.add(g.mul(v.state, v.decay), v.update);
}

void LightningAttention::pass_token(GraphBuilder& g, Variables& v, const Var& ratio,
                                    int64_t token) const {
  const Var query = g.slice(v.query, 2, token, token + 1);
  const Var key = g.slice(v.key, 2, token, token + 1);
  const Var value = g.slice(v.value, 2, token, token + 1);
  v.update = g.matmul(g.transpose(key, -1, -2), value);
  v.state = g.add(g.mul(ratio, v.state), v.update);
  v.output = g.matmul(query, v.state);
  v.outputs.push_back(v.output);
}

Attended LightningAttention::operator()(GraphBuilder& g, const BuildOptions& options,
                                        const Var& x) const {
  const int64_t b = options.batch;
  const int64_t t = options.sequence;
  Variables v;
  Var qkv = qkv_(g, x);
  qkv = activate(g, s_.activation, qkv);
  qkv = g.reshape(qkv, {b, t, s_.heads, 3 * s_.head_dim});
  {
    const auto parts = g.split(qkv, {s_.head_dim, s_.head_dim, s_.head_dim}, 3);
    v.query = parts[0];
    v.key = parts[1];
    v.value = parts[2];
  }
  for (Var* part : {&v.query, &v.key, &v.value}) *part = g.transpose(*part, 1, 2);
  const std::string cache = options.use_cache ? next_cache_name(g) : std::string();
  if (options.use_cache && options.past > 0) {
    v.state = g.input(cache + ".state", {b, s_.heads, s_.head_dim, s_.head_dim}, std::nullopt);
    const Var ratio = g.exp(g.neg(slope_));
    for (int64_t i = 0; i < t; ++i) pass_token(g, v, ratio, i);
  } else {
    v.state = g.full_like({b, s_.heads, s_.head_dim, s_.head_dim}, v.value);
    for (int64_t i = 0; i < t; i += s_.block) pass_block(g, v, i, std::min(i + s_.block, t));
  }
  Var output = g.cat(v.outputs, -2);
  v.outputs.clear();
  output = g.transpose(output, 1, 2);
  output = g.reshape(output, {b, t, s_.heads * s_.head_dim});
  output = norm_(g, output);
  {
    Var gate = g.sigmoid(gate_(g, x));
    output = g.mul(std::move(gate), output);
  }
  output = out_(g, output);
  if (options.use_cache) g.keep(v.state);
  return {output, v.state, {}};
}

}  // namespace headroom::model
