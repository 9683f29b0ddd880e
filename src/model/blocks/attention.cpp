#include "model/blocks/attention.h"

#include "model/blocks/cache.h"

namespace headroom::model {

std::string_view name_of(Attention attention) {
  switch (attention) {
    case Attention::eager:
      return "eager";
    case Attention::sdpa:
      return "sdpa";
    case Attention::flash_attention_2:
      return "flash_attention_2";
  }
  return "";
}

BuildOptions without_sdpa(const BuildOptions& options) {
  BuildOptions changed = options;
  if (changed.attention == Attention::sdpa) changed.attention = Attention::eager;
  return changed;
}

Var repeat_heads(GraphBuilder& g, const AttentionShape& s, const Var& x) {
  const int64_t repeats = s.heads / s.kv_heads;
  if (repeats == 1) return x;
  const int64_t keys = s.past + s.sequence;
  const Var expanded =
      g.expand(g.unsqueeze(x, 2), {s.batch, s.kv_heads, repeats, keys, s.head_dim});
  return g.reshape(expanded, {s.batch, s.heads, keys, s.head_dim});
}

namespace {

Attended attend_eager(GraphBuilder& g, const AttentionShape& s, const Var& query, const Var& key_in,
                      const Var& value_in, const Var& mask, const Var& position_bias) {
  const Var key = repeat_heads(g, s, key_in);
  const Var value = repeat_heads(g, s, value_in);
  Var weights = g.mul(g.matmul(query, g.transpose(key, 2, 3)), 1.0);
  if (s.softcap) {
    weights = g.div(weights, 1.0);
    weights = g.tanh(weights);
    weights = g.mul(weights, 1.0);
  }
  if (position_bias) weights = g.add(weights, position_bias);
  if (mask) weights = g.add(weights, mask);
  if (s.float32_softmax) {
    weights = g.to_like(g.softmax(weights, -1, DType::f32), query);
  } else {
    weights = g.softmax(weights, -1);
  }
  weights = g.dropout(weights, s.dropout);
  Var output = g.matmul(weights, value);
  output = g.transpose(output, 1, 2);
  if (s.contiguous_output) output = g.contiguous(output);
  return {output, weights};
}

// The bias as a mask, with minus infinity where a causal model does not look
// (create_position_bias_mask in transformers' integrations/sdpa_attention.py).
Var biased_mask(GraphBuilder& g, const AttentionShape& s, const Var& position_bias) {
  if (!s.causal || s.sequence == 1) return g.contiguous(position_bias);
  Var allowed;
  {
    const Var queries = g.unsqueeze(g.arange(s.sequence), -1);
    allowed = g.compare(queries, g.unsqueeze(g.arange(s.sequence), 0));
  }
  allowed = g.view(allowed, {1, 1, s.sequence, s.sequence});
  const Var masked = g.where(allowed, position_bias, g.full_like({}, position_bias));
  return g.contiguous(masked);
}

Attended attend_sdpa(GraphBuilder& g, const AttentionShape& s, const Var& query, const Var& key_in,
                     const Var& value_in, const Var& mask_in, const Var& position_bias) {
  const Var mask = position_bias ? biased_mask(g, s, position_bias) : mask_in;
  const bool grouped = s.heads != s.kv_heads;
  const bool kernel_groups = grouped && !mask && s.head_dim <= 256;
  const Var key = grouped && !kernel_groups ? repeat_heads(g, s, key_in) : key_in;
  const Var value = grouped && !kernel_groups ? repeat_heads(g, s, value_in) : value_in;
  const bool causal = s.causal && !mask && s.sequence > 1;
  const Var output = g.sdpa(query, key, value, mask, causal, kernel_groups, s.dropout);
  return {g.contiguous(g.transpose(output, 1, 2)), {}};
}

}  // namespace

Attended attend(GraphBuilder& g, const BuildOptions& options, const AttentionShape& shape,
                const Var& query, const Var& new_key, const Var& new_value, const Var& mask,
                const Var& position_bias) {
  AttentionShape s = shape;
  s.past = options.use_cache ? options.past : 0;
  const auto [key, value] =
      s.is_cached ? std::pair(new_key, new_value) : update_cache(g, options, s, new_key, new_value);
  switch (options.attention) {
    case Attention::eager:
      return attend_eager(g, s, query, key, value, mask, position_bias);
    case Attention::sdpa:
      return attend_sdpa(g, s, query, key, value, mask, position_bias);
    case Attention::flash_attention_2: {
      const Var all_keys = s.repeats_for_flash ? repeat_heads(g, s, key) : key;
      const Var all_values = s.repeats_for_flash ? repeat_heads(g, s, value) : value;
      const Var q = g.transpose(query, 1, 2);
      const Var k = g.transpose(all_keys, 1, 2);
      // The kernel wants values as wide as keys, and its output is cut again
      // (transformers/integrations/flash_attention.py).
      const bool is_narrow = s.value_dim != 0 && s.value_dim < s.head_dim;
      Var v = g.transpose(all_values, 1, 2);
      if (is_narrow) v = g.pad(v, {0, s.head_dim - s.value_dim});
      Var output = g.flash_attention(q, k, v, s.causal, s.dropout);
      if (is_narrow) output = g.slice(output, 3, 0, s.value_dim);
      return {std::move(output), {}};
    }
  }
  return {};
}

}  // namespace headroom::model
