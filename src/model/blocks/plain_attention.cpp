#include "model/blocks/plain_attention.h"

namespace headroom::model {

PlainAttention::PlainAttention(GraphBuilder& g, const PlainAttentionShape& s,
                               const PlainAttentionNames& names, const std::string& name)
    : shape_(s),
      query_(g, name + "." + names.query, s.hidden, s.heads * s.head_dim, s.qkv_bias),
      key_(g, name + "." + names.key, s.hidden, s.heads * s.head_dim, s.qkv_bias),
      value_(g, name + "." + names.value, s.hidden, s.heads * s.head_dim, s.qkv_bias) {
  if (names.output == nullptr) return;
  output_.emplace(g, name + "." + names.output, s.heads * s.head_dim, s.hidden, s.output_bias);
}

Attended PlainAttention::operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                                    int64_t sequence, const Var& context, int64_t context_length,
                                    const Var& mask, const PositionBias& make_bias) const {
  const PlainAttentionShape& s = shape_;
  const auto heads = [&](Var projected, int64_t length) {
    return g.transpose(g.view(std::move(projected), {options.batch, length, -1, s.head_dim}), 1, 2);
  };
  const Var query = heads(query_(g, x), sequence);
  const Var key = heads(key_(g, context), context_length);
  const Var value = heads(value_(g, context), context_length);
  const Var bias = make_bias ? make_bias() : Var();
  AttentionShape shape{options.batch, sequence, s.heads, s.heads, s.head_dim, s.dropout, s.causal};
  shape.float32_softmax = s.float32_softmax;
  Attended attended = attend(g, options, shape, query, key, value, mask, bias);
  attended.output = g.contiguous(g.reshape(attended.output, {options.batch, sequence, -1}));
  if (output_) attended.output = (*output_)(g, attended.output);
  return attended;
}

}  // namespace headroom::model
