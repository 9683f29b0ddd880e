#include "model/blocks/gated_attention.h"

#include <tuple>
#include <utility>

#include "model/blocks/rotary.h"

namespace headroom::model {

GatedAttention::GatedAttention(GraphBuilder& g, const GatedAttentionShape& s,
                               const std::string& name)
    : s_(s),
      q_(g, name + ".q_proj", s.hidden, 2 * s.heads * s.head_dim, s.bias),
      k_(g, name + ".k_proj", s.hidden, s.kv_heads * s.head_dim, s.bias),
      v_(g, name + ".v_proj", s.hidden, s.kv_heads * s.head_dim, s.bias),
      o_(g, name + ".o_proj", s.heads * s.head_dim, s.hidden, s.bias),
      q_norm_(g, name + ".q_norm", s.head_dim),
      k_norm_(g, name + ".k_norm", s.head_dim) {}

Attended GatedAttention::operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                                    const LayerInputs& in) const {
  const int64_t b = options.batch;
  const int64_t t = options.sequence;
  const std::vector<int64_t> heads{b, t, -1, s_.head_dim};
  Var query, gate;
  {
    const auto halves =
        g.split(g.view(q_(g, x), {b, t, -1, 2 * s_.head_dim}), {s_.head_dim, s_.head_dim}, -1);
    query = halves[0];
    gate = halves[1];
  }
  gate = g.reshape(gate, {b, t, -1});
  query = g.transpose(q_norm_(g, g.view(query, heads)), 1, 2);
  Var key = g.transpose(k_norm_(g, g.view(k_(g, x), heads)), 1, 2);
  const Var value = g.transpose(g.view(v_(g, x), heads), 1, 2);
  std::tie(query, key) =
      rotate_then_join(g, query, key, in.cos, in.sin, s_.rotary_dims, s_.head_dim);
  const AttentionShape shape{
      b, t, s_.heads, s_.kv_heads, s_.head_dim, options.training ? s_.dropout : 0, true};
  Attended attended = attend(g, options, shape, query, key, value, in.mask);
  attended.output = g.contiguous(g.reshape(attended.output, {b, t, -1}));
  attended.output = g.mul(attended.output, g.sigmoid(gate));
  attended.output = o_(g, attended.output);
  return attended;
}

}  // namespace headroom::model
