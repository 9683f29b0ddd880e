#include "model/megatron_layer.h"

#include <vector>

#include "model/megatron_attention.h"
#include "model/megatron_fp8.h"
#include "model/megatron_linear.h"

namespace headroom::model {

MegatronMlp::MegatronMlp(GraphBuilder& g, const MegatronStage& stage, const std::string& path)
    : norm_(g, path + ".linear_fc1.layer_norm_", stage.model, stage.model.hidden) {
  const MegatronModel& m = stage.model;
  const int64_t width = m.inner / stage.rank.tensor;
  const int64_t columns = width * (m.gated ? 2 : 1);
  fc1_weight_ =
      g.parameter(path + ".linear_fc1.weight", {columns, m.hidden}, ParameterRole::linear);
  if (m.linear_bias) {
    fc1_bias_ = g.parameter(path + ".linear_fc1.bias", {columns}, ParameterRole::bias);
  }
  fc2_weight_ = g.parameter(path + ".linear_fc2.weight", {m.hidden, width}, ParameterRole::linear);
  if (m.linear_bias) {
    fc2_bias_ = g.parameter(path + ".linear_fc2.bias", {m.hidden}, ParameterRole::bias);
  }
  keep_in_fp8(g, m, path + ".linear_fc1", {columns, m.hidden});
  keep_in_fp8(g, m, path + ".linear_fc2", {m.hidden, width});
}

Var MegatronMlp::operator()(GraphBuilder& g, const MegatronStage& stage, const Var& input,
                            const Var& gathered) const {
  Var x = normed_columns(g, stage, input, norm_, fc1_weight_, Var(), gathered);
  x = activated(g, stage, std::move(x));
  return summed_rows(g, stage, std::move(x), fc2_weight_);
}

Var MegatronMlp::activated(GraphBuilder& g, const MegatronStage& stage, Var x) const {
  const MegatronModel& m = stage.model;
  if (!m.plain_activation) {
    return g.apply(m.gated ? OpKind::bias_swiglu : OpKind::bias_gelu, {std::move(x), fc1_bias_});
  }
  if (fc1_bias_) x = g.add(std::move(x), fc1_bias_);
  if (!m.gated) return g.gelu(std::move(x), false);
  const int64_t width = m.inner / stage.rank.tensor;
  const std::vector<Var> halves = g.split(std::move(x), {width, width}, -1);
  return g.mul(g.silu(halves[0]), halves[1]);
}

MegatronSelfAttention::MegatronSelfAttention(GraphBuilder& g, const MegatronSizes& sizes,
                                             const std::string& layer)
    : sizes_(sizes), name_(layer + ".self_attention") {
  const MegatronModel& m = sizes.stage.model;
  const int64_t features = (sizes.heads + 2 * sizes.kv_heads) * m.head_size;
  proj_weight_ = g.parameter(name_ + ".linear_proj.weight", {m.hidden, sizes.heads * m.head_size},
                             ParameterRole::linear);
  norm_ = MegatronNorm(g, name_ + ".linear_qkv.layer_norm_", m, m.hidden);
  qkv_weight_ =
      g.parameter(name_ + ".linear_qkv.weight", {features, m.hidden}, ParameterRole::linear);
  if (m.linear_bias) {
    proj_bias_ = g.parameter(name_ + ".linear_proj.bias", {m.hidden}, ParameterRole::bias);
  }
  if (m.qkv_bias) {
    qkv_bias_ = g.parameter(name_ + ".linear_qkv.bias", {features}, ParameterRole::bias);
  }
  keep_in_fp8(g, m, name_ + ".linear_proj", {m.hidden, sizes.heads * m.head_size});
  keep_in_fp8(g, m, name_ + ".linear_qkv", {features, m.hidden});
  if (!m.head_norms) return;
  query_norm_ = MegatronNorm(g, name_ + ".q_layernorm.", m, m.head_size);
  key_norm_ = MegatronNorm(g, name_ + ".k_layernorm.", m, m.head_size);
}

// Transformer Engine's norms copy what does not lie in one piece.
Var MegatronSelfAttention::normed(GraphBuilder& g, const Var& heads, const MegatronNorm& norm) {
  if (!norm.weight) return heads;
  return g.apply(OpKind::te_norm, {g.contiguous(heads), norm.weight, norm.bias});
}

// apply_rotary_pos_emb: Transformer Engine's kernel, or _apply_rotary_pos_emb_bshd.
Var MegatronSelfAttention::turned(GraphBuilder& g, Var x, const Var& angles) const {
  const MegatronModel& m = sizes_.stage.model;
  if (!m.plain_rotary) return g.apply(OpKind::te_rotary, {std::move(x), angles});
  const int64_t size = m.turned_columns();
  Var rest;
  if (size < m.head_size) {
    rest = g.slice(x, 3, size, m.head_size);
    x = g.slice(std::move(x), 3, 0, size);
  }
  const Var cosine = g.to_like(g.mul(g.cos(angles), 1.0), x);
  const Var sine = g.to_like(g.mul(g.sin(angles), 1.0), x);
  Var rotated;
  if (m.interleaved_rotary) {
    const std::vector<Var> pairs{g.neg(g.slice(x, 3, 1, size, 2)), g.slice(x, 3, 0, size, 2)};
    rotated =
        g.view(g.stack(pairs, -1), {sizes_.local_sequence, sizes_.stage.micro_batch, -1, size});
  } else {
    const std::vector<Var> halves{g.neg(g.slice(x, 3, size / 2, size)), g.slice(x, 3, 0, size / 2)};
    rotated = g.cat(halves, 3);
  }
  x = g.add(g.mul(std::move(x), cosine), g.mul(std::move(rotated), sine));
  std::vector<Var> whole{x};
  if (rest) whole.push_back(rest);
  return g.cat(whole, 3);
}

Var MegatronSelfAttention::operator()(GraphBuilder& g, const Var& input,
                                      const MegatronContext& context) const {
  const int64_t s = sizes_.local_sequence;
  const int64_t b = sizes_.stage.micro_batch;
  const int64_t d = sizes_.stage.model.head_size;
  const Var& angles = context.angles;
  const Var qkv =
      normed_columns(g, sizes_.stage, input, norm_, qkv_weight_, qkv_bias_, context.gathered);
  const int64_t group = sizes_.heads / sizes_.kv_heads;
  std::vector<Var> parts =
      g.split(g.view(qkv, {s, b, sizes_.kv_heads, (group + 2) * d}), {group * d, d, d}, 3);
  parts[0] = g.reshape(parts[0], {s, b, sizes_.heads, d});
  parts[0] = normed(g, parts[0], query_norm_);
  parts[1] = normed(g, parts[1], key_norm_);
  if (angles) {
    for (size_t i = 0; i < 2; ++i) parts[i] = turned(g, std::move(parts[i]), angles);
  }
  const CoreAttention core{.queries = s,
                           .keys = s,
                           .heads = sizes_.heads,
                           .kv_heads = sizes_.kv_heads,
                           .key_size = d,
                           .value_size = d,
                           .lie_apart = angles || query_norm_.weight,
                           .is_padded = sizes_.is_encoder};
  Var seen = core(g, sizes_.stage, std::move(parts), context, name_);
  return summed_rows(g, sizes_.stage, std::move(seen), proj_weight_, true);
}

MegatronCrossAttention::MegatronCrossAttention(GraphBuilder& g, const MegatronSizes& sizes,
                                               const std::string& layer)
    : sizes_(sizes), name_(layer + ".cross_attention") {
  const MegatronModel& m = sizes.stage.model;
  const int64_t features = sizes.heads * m.head_size;
  norm_ = MegatronNorm(g, layer + ".pre_cross_attn_layernorm.", m, m.hidden);
  const auto matrix = [&](const char* name, int64_t rows, int64_t columns) {
    keep_in_fp8(g, m, name_ + name, {rows, columns});
    return g.parameter(name_ + name + ".weight", {rows, columns}, ParameterRole::linear);
  };
  const auto bias = [&](const char* name, int64_t size) {
    return m.linear_bias ? g.parameter(name_ + name, {size}, ParameterRole::bias) : Var();
  };
  proj_weight_ = matrix(".linear_proj", m.hidden, features);
  proj_bias_ = bias(".linear_proj.bias", m.hidden);
  query_weight_ = matrix(".linear_q", features, m.hidden);
  query_bias_ = bias(".linear_q.bias", features);
  key_weight_ = matrix(".linear_kv", 2 * features, m.hidden);
  key_bias_ = bias(".linear_kv.bias", 2 * features);
}

Var MegatronCrossAttention::operator()(GraphBuilder& g, const Var& input,
                                       const MegatronContext& context) const {
  const int64_t keys = context.encoded_sequence;
  const int64_t s = sizes_.local_sequence;
  const int64_t b = sizes_.stage.micro_batch;
  const int64_t d = sizes_.stage.model.head_size;
  const Var normed = g.apply(OpKind::te_norm, {input, norm_.weight, norm_.bias});
  const Var both =
      plain_columns(g, sizes_.stage, context.encoded, key_weight_, key_bias_, context.gathered);
  std::vector<Var> parts = g.split(g.view(both, {keys, b, sizes_.heads, 2 * d}), {d, d}, 3);
  const Var query =
      plain_columns(g, sizes_.stage, normed, query_weight_, query_bias_, context.gathered);
  parts.insert(parts.begin(), g.view(query, {s, b, sizes_.heads, d}));
  const CoreAttention core{.queries = s,
                           .keys = keys,
                           .heads = sizes_.heads,
                           .kv_heads = sizes_.heads,
                           .key_size = d,
                           .value_size = d,
                           .is_padded = true};
  Var seen = core(g, sizes_.stage, std::move(parts), context, name_);
  return summed_rows(g, sizes_.stage, std::move(seen), proj_weight_, true);
}

MegatronLayer::MegatronLayer(GraphBuilder& g, const MegatronSizes& sizes, const std::string& path)
    : sizes_(sizes), name_(path) {
  const MegatronModel& m = sizes.stage.model;
  if (m.latent.key_rank > 0) {
    latent_.emplace(g, sizes, path);
  } else {
    heads_.emplace(g, sizes, path);
  }
  if (sizes.is_behind_encoder) cross_.emplace(g, sizes, path);
  if (m.experts == 0) {
    dense_.emplace(g, sizes.stage, path + ".mlp");
    return;
  }
  MegatronNorm norm(g, path + ".pre_mlp_layernorm.", m, m.hidden);
  mixture_.emplace(
      Mixture{std::move(norm), MegatronExperts(g, sizes.stage, path + ".mlp"), std::nullopt});
  if (m.shared_inner > 0) mixture_->shared.emplace(g, sizes.stage, path + ".mlp");
}

Var MegatronLayer::operator()(GraphBuilder& g, Var input, const MegatronContext& context) const {
  RegionScope region(g, RegionKind::layer, name_, {&input, &context.angles, &context.encoded});
  region.set_positional(3);  // tensor_parallel.checkpoint takes all of them so
  Var x;
  {
    RegionScope inner(g, RegionKind::attention, name_ + ".self_attention", {&input});
    x = latent_ ? (*latent_)(g, input, context) : (*heads_)(g, input, context);
    inner.leave({&x});
  }
  Var residual = add(g, std::move(x), latent_ ? latent_->bias() : heads_->bias(), std::move(input));
  if (cross_) {
    RegionScope inner(g, RegionKind::attention, name_ + ".cross_attention",
                      {&residual, &context.encoded});
    x = (*cross_)(g, residual, context);
    inner.leave({&x});
  }
  if (cross_) residual = add(g, std::move(x), cross_->bias(), std::move(residual));
  x = run_mlp(g, residual, context.gathered);
  x = add(g, std::move(x), dense_ ? dense_->bias() : Var(), std::move(residual));
  region.leave({&x});
  return x;
}

Var MegatronLayer::run_mlp(GraphBuilder& g, const Var& input, const Var& gathered) const {
  RegionScope region(g, RegionKind::mlp, name_ + ".mlp", {&input});
  Var x;
  if (dense_) {
    x = (*dense_)(g, sizes_.stage, input, gathered);
  } else {
    const MegatronNorm& norm = mixture_->norm;
    const Var normed = g.apply(OpKind::te_norm, {input, norm.weight, norm.bias});
    const Var shared = mixture_->shared ? (*mixture_->shared)(g, normed, gathered) : Var();
    x = mixture_->experts(g, normed, gathered);
    if (shared) x = g.add(std::move(x), shared);
  }
  region.leave({&x});
  return x;
}

Var MegatronLayer::add(GraphBuilder& g, Var x, const Var& its_bias, Var residual) const {
  const MegatronModel& m = sizes_.stage.model;
  if (m.plain_dropout_add) {
    if (its_bias) x = g.add(std::move(x), its_bias);
    x = g.dropout(std::move(x), m.hidden_dropout);
    return g.add(std::move(residual), std::move(x));
  }
  Attributes attributes;
  attributes.number = m.hidden_dropout;
  return g.apply(OpKind::bias_dropout_add, {std::move(x), its_bias, std::move(residual)},
                 std::move(attributes));
}

}  // namespace headroom::model
