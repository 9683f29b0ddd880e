#include "model/blocks/gated_delta_net.h"

#include <utility>
#include <vector>

#include "model/blocks/cache.h"

namespace headroom::model {

Var GatedRmsNorm::operator()(GraphBuilder& g, const Var& input, const Var& gate) const {
  Var x = g.to(input, DType::f32);
  const Var variance = g.mean(g.pow(x, 2), {-1}, true);
  x = g.mul(x, g.rsqrt(g.add(variance, 1e-6)));
  x = g.mul(weight, g.to_like(x, input));
  x = g.mul(x, g.silu(g.to(gate, DType::f32)));
  return g.to_like(x, input);
}

GatedDeltaNet::GatedDeltaNet(GraphBuilder& g, const DeltaNetShape& shape, const std::string& name)
    : s_(shape),
      keys_(shape.key_heads * shape.key_dim),
      values_(shape.value_heads * shape.value_dim),
      dt_bias_(g.parameter(name + ".dt_bias", {shape.value_heads}, ParameterRole::other)),
      a_log_(g.parameter(name + ".A_log", {shape.value_heads}, ParameterRole::other)),
      kernel_(g.parameter(name + ".conv1d.weight", {2 * keys_ + values_, 1, shape.kernel},
                          ParameterRole::other)) {
  const auto linear = [&](const char* part, int64_t out) {
    return Linear(g, name + ".in_proj_" + part, s_.hidden, out, false);
  };
  if (s_.grouped_projections) {
    qkv_ = linear("qkvz", 2 * keys_ + 2 * values_);
    beta_ = linear("ba", 2 * s_.value_heads);
    norm_.emplace(g, name + ".norm", s_.value_dim);
    out_.emplace(g, name + ".out_proj", values_, s_.hidden, false);
    return;
  }
  norm_.emplace(g, name + ".norm", s_.value_dim);
  out_.emplace(g, name + ".out_proj", values_, s_.hidden, false);
  qkv_ = linear("qkv", 2 * keys_ + values_);
  gate_ = linear("z", values_);
  beta_ = linear("b", s_.value_heads);
  decay_ = linear("a", s_.value_heads);
}

GatedDeltaNet::Projected GatedDeltaNet::from_groups(GraphBuilder& g, const BuildOptions& options,
                                                    const Var& x) const {
  const int64_t b = options.batch;
  const int64_t t = options.sequence;
  const int64_t per_key = s_.value_heads / s_.key_heads;
  Projected p;
  p.held[0] = (*qkv_)(g, x);
  p.held[1] = (*beta_)(g, x);
  const Var grouped = g.view(p.held[0], {b, t, s_.key_heads, -1});
  const Var numbers = g.view(p.held[1], {b, t, s_.key_heads, -1});
  const int64_t width = per_key * s_.value_dim;
  const auto parts = g.split(grouped, {s_.key_dim, s_.key_dim, width, width}, 3);
  const auto pair = g.split(numbers, {per_key, per_key}, 3);
  Var value = g.reshape(parts[2], {b, t, -1, s_.value_dim});
  p.gate = g.reshape(parts[3], {b, t, -1, s_.value_dim});
  p.beta = g.reshape(pair[0], {b, t, s_.value_heads});
  p.decay = g.reshape(pair[1], {b, t, s_.value_heads});
  p.parts = {parts[0], parts[1], value};
  value = Var();
  for (Var& part : p.parts) part = g.reshape(part, {b, t, -1});
  p.mixed = g.transpose(g.cat(p.parts, -1), 1, 2);
  return p;
}

GatedDeltaNet::Projected GatedDeltaNet::projected(GraphBuilder& g, const BuildOptions& options,
                                                  const Var& x) const {
  if (s_.grouped_projections) return from_groups(g, options, x);
  Projected p;
  p.mixed = g.transpose((*qkv_)(g, x), 1, 2);
  p.gate = g.reshape((*gate_)(g, x), {options.batch, options.sequence, -1, s_.value_dim});
  p.beta = (*beta_)(g, x);
  p.decay = (*decay_)(g, x);
  return p;
}

// mixed [batch, channels, length]; every channel sees `kernel` tokens back (causal_conv1d_fn).
Var GatedDeltaNet::convolved(GraphBuilder& g, const Var& mixed, int64_t length) const {
  const Var weight = g.squeeze(kernel_, 1);
  const Var input = g.to_like(mixed, weight);
  Var out = g.conv1d(input, g.unsqueeze(weight, 1), {}, s_.kernel - 1, 2 * keys_ + values_);
  out = g.slice(out, 2, 0, length);
  out = g.silu(out);
  return g.to_like(out, mixed);
}

// The same for one token behind the last ones, which the cache has (causal_conv1d_update).
Var GatedDeltaNet::convolved_behind(GraphBuilder& g, const Var& mixed, const Var& last) const {
  const Var weight = g.squeeze(kernel_, 1);
  const std::array<Var, 2> parts{last, mixed};
  const Var input = g.to_like(g.cat(parts, -1), weight);
  Var out = g.conv1d(input, g.unsqueeze(weight, 1), {}, 0, 2 * keys_ + values_);
  out = g.slice(out, 2, 1, 2);
  out = g.silu(out);
  return g.to_like(out, mixed);
}

Var GatedDeltaNet::convolved_with_cache(GraphBuilder& g, const BuildOptions& options,
                                        const Var& mixed, const std::string& cache) const {
  const int64_t t = options.sequence;
  const Dims sizes{options.batch, 2 * keys_ + values_, s_.kernel};
  int64_t length = t;
  Var all = mixed;
  if (options.past > 0) {
    const Var last = cached_state(g, cache + ".convolution", sizes, std::nullopt);
    if (t == 1) return convolved_behind(g, mixed, last);
    const std::array<Var, 2> parts{last, mixed};
    all = g.cat(parts, -1);
    length += s_.kernel;
  } else {
    begin_cached_state(g, mixed, sizes);
    if (t < s_.kernel) {
      all = g.pad(mixed, {s_.kernel - t, 0});
      length = s_.kernel;
    }
  }
  return g.slice(convolved(g, all, length), 2, length - t, length);
}

// With a cache, the rule goes on from its state and leaves the new one in it.
Var GatedDeltaNet::ruled(GraphBuilder& g, const BuildOptions& options, const Projected& p,
                         const Var& decay, const Var& beta, const std::string& cache,
                         Var& state) const {
  const bool continues = options.use_cache && options.past > 0;
  Var before;
  if (continues) {
    before = cached_state(g, cache + ".state",
                          {options.batch, s_.value_heads, s_.key_dim, s_.value_dim}, DType::f32);
  }
  const DeltaRuleInputs inputs{p.parts[0], p.parts[1], p.parts[2], decay, beta, before};
  DeltaRuleOutputs out = continues && options.sequence == 1
                             ? recurrent_delta_rule(g, options, s_, inputs)
                             : chunked_delta_rule(g, options, s_, inputs, options.use_cache);
  if (options.use_cache && !continues) begin_cached_state(g, out.state);
  state = std::move(out.state);
  return std::move(out.output);
}

Var GatedDeltaNet::operator()(GraphBuilder& g, const BuildOptions& options, const Var& x) const {
  const int64_t b = options.batch;
  const int64_t t = options.sequence;
  Projected p = projected(g, options, x);
  const std::string cache = options.use_cache ? next_cache_name(g) : std::string();
  p.mixed = options.use_cache ? convolved_with_cache(g, options, p.mixed, cache)
                              : convolved(g, p.mixed, t);
  p.mixed = g.transpose(p.mixed, 1, 2);
  {
    const auto parts = g.split(p.mixed, {keys_, keys_, values_}, -1);
    p.parts = {parts[0], parts[1], parts[2]};
  }
  p.parts[0] = g.reshape(p.parts[0], {b, t, -1, s_.key_dim});
  p.parts[1] = g.reshape(p.parts[1], {b, t, -1, s_.key_dim});
  p.parts[2] = g.reshape(p.parts[2], {b, t, -1, s_.value_dim});
  const Var beta = g.sigmoid(p.beta);
  Var decay;
  {
    Var rate = g.neg(g.exp(g.to(a_log_, DType::f32)));
    decay = g.mul(std::move(rate), g.softplus(g.add(g.to(p.decay, DType::f32), dt_bias_)));
  }
  Var state;
  Var output = ruled(g, options, p, decay, beta, cache, state);
  output = g.reshape(output, {-1, s_.value_dim});
  p.gate = g.reshape(p.gate, {-1, s_.value_dim});
  output = (*norm_)(g, output, p.gate);
  output = g.reshape(output, {b, t, -1, s_.value_dim});
  output = g.reshape(output, {b, t, -1});
  return (*out_)(g, output);
}

}  // namespace headroom::model
