#include "model/megatron_mla.h"

#include "model/megatron_attention.h"
#include "model/megatron_fp8.h"

namespace headroom::model {

MegatronLatentAttention::MegatronLatentAttention(GraphBuilder& g, const MegatronSizes& sizes,
                                                 const std::string& layer)
    : sizes_(sizes), name_(layer + ".self_attention") {
  const MegatronModel& m = sizes.stage.model;
  const MegatronLatent& l = m.latent;
  const auto matrix = [&](const char* name, int64_t rows, int64_t columns) {
    keep_in_fp8(g, m, name_ + name, {rows, columns});
    return g.parameter(name_ + name + ".weight", {rows, columns}, ParameterRole::linear);
  };
  input_norm_ = MegatronNorm(g, layer + ".input_layernorm.", m, m.hidden);
  proj_weight_ = matrix(".linear_proj", m.hidden, sizes.heads * l.value_size);
  if (m.linear_bias) {
    proj_bias_ = g.parameter(name_ + ".linear_proj.bias", {m.hidden}, ParameterRole::bias);
  }
  const int64_t query_features = sizes.heads * (l.key_size + l.rotary_size);
  if (l.query_rank == 0) {
    query_weight_ = matrix(".linear_q_proj", query_features, m.hidden);
  } else {
    query_down_ = matrix(".linear_q_down_proj", l.query_rank, m.hidden);
    if (l.norms) {
      query_norm_ = MegatronNorm(g, name_ + ".linear_q_up_proj.layer_norm_", m, l.query_rank);
    }
    query_up_ = matrix(".linear_q_up_proj", query_features, l.query_rank);
  }
  key_down_ = matrix(".linear_kv_down_proj", l.key_rank + l.rotary_size, m.hidden);
  if (l.norms) {
    key_norm_ = MegatronNorm(g, name_ + ".linear_kv_up_proj.layer_norm_", m, l.key_rank);
  }
  key_up_ = matrix(".linear_kv_up_proj", sizes.heads * (l.key_size + l.value_size), l.key_rank);
}

Var MegatronLatentAttention::raised(GraphBuilder& g, const Var& narrow, const MegatronNorm& norm,
                                    const Var& weight) const {
  const Attributes attributes = in_fp8(divided(sizes_.stage.rank), sizes_.stage.model);
  if (!norm.weight) {
    return g.apply(OpKind::te_column_linear, {narrow, weight, Var()}, attributes);
  }
  return g.apply(OpKind::te_norm_linear, {narrow, norm.weight, norm.bias, weight, Var()},
                 attributes);
}

Var MegatronLatentAttention::key_positions(GraphBuilder& g, Var part) const {
  const int64_t b = sizes_.stage.micro_batch;
  const int64_t size = latent().rotary_size;
  if (sizes_.sequence_ranks > 1) {
    Attributes ranks;
    ranks.ints = {sizes_.sequence_ranks};
    part = g.reshape(g.contiguous(std::move(part)), {-1, size});
    part = g.apply(OpKind::sequence_gather, {std::move(part), Var()}, std::move(ranks));
  }
  return g.reshape(std::move(part), {sizes_.local_sequence, b, 1, size});
}

// _apply_rotary_pos_emb_bshd with mla_rotary_interleaved.
Var MegatronLatentAttention::turned(GraphBuilder& g, Var x) const {
  const int64_t size = latent().rotary_size;
  const Var angles = g.full({sizes_.local_sequence, 1, 1, size}, DType::f32);
  {
    const std::vector<Var> halves{g.slice(x, 3, 0, size, 2), g.slice(x, 3, 1, size, 2)};
    x = g.cat(halves, 3);
  }
  const Var cosine = g.to_like(g.mul(g.cos(angles), 1.0), x);
  const Var sine = g.to_like(g.mul(g.sin(angles), 1.0), x);
  Var rotated;
  {
    const std::vector<Var> halves{g.neg(g.slice(x, 3, size / 2, size)), g.slice(x, 3, 0, size / 2)};
    rotated = g.cat(halves, 3);
  }
  x = g.add(g.mul(x, cosine), g.mul(std::move(rotated), sine));
  const std::vector<Var> whole{x};  // beside nothing that is passed on
  return g.cat(whole, 3);
}

std::vector<Var> MegatronLatentAttention::by_plain_operators(GraphBuilder& g, Var query, Var both,
                                                             Var positions) const {
  const MegatronLatent& l = latent();
  std::vector<Var> queries = g.split(std::move(query), {l.key_size, l.rotary_size}, 3);
  std::vector<Var> keys = g.split(std::move(both), {l.key_size, l.value_size}, 3);
  queries[1] = turned(g, queries[1]);
  positions = turned(g, std::move(positions));
  Var whole_query = g.cat(queries, 3);
  queries.clear();
  const std::vector<Var> key_parts{
      keys[0], g.expand(std::move(positions), {sizes_.local_sequence, sizes_.stage.micro_batch,
                                               sizes_.heads, l.rotary_size})};
  Var whole_key = g.cat(key_parts, 3);
  return {std::move(whole_query), std::move(whole_key), g.contiguous(keys[1])};
}

// ApplyMLARotaryEmbQ writes over the queries; ApplyMLARotaryEmbKV makes keys and values.
std::vector<Var> MegatronLatentAttention::by_fused_kernels(GraphBuilder& g, Var query, Var both,
                                                           Var positions) const {
  Attributes attributes;
  attributes.ints = {latent().key_size};
  std::vector<Var> keys = g.apply_many(OpKind::latent_keys, {std::move(both), std::move(positions)},
                                       2, std::move(attributes));
  return {std::move(query), std::move(keys[0]), std::move(keys[1])};
}

Var MegatronLatentAttention::operator()(GraphBuilder& g, const Var& input,
                                        const MegatronContext& given) const {
  const MegatronLatent& l = latent();
  const Attributes by_heads = in_fp8(divided(sizes_.stage.rank), sizes_.stage.model);
  const Attributes whole = in_fp8(undivided(sizes_.stage.rank), sizes_.stage.model);
  const int64_t s = sizes_.local_sequence;
  const int64_t b = sizes_.stage.micro_batch;
  const Var normed = g.apply(OpKind::te_norm, {input, input_norm_.weight, input_norm_.bias});
  Var query;
  if (query_weight_) {
    query = g.apply(OpKind::te_column_linear, {normed, query_weight_, Var()}, by_heads);
  } else {
    const Var narrow = g.apply(OpKind::te_row_linear, {normed, query_down_}, whole);
    query = raised(g, narrow, query_norm_, query_up_);
  }
  Var narrow = g.apply(OpKind::te_row_linear, {normed, key_down_}, whole);
  std::vector<Var> parts = g.split(std::move(narrow), {l.key_rank, l.rotary_size}, 2);
  Var positions = key_positions(g, parts[1]);
  Var both = raised(g, parts[0], key_norm_, key_up_);
  parts.clear();
  query = g.view(std::move(query), {s, b, sizes_.heads, l.key_size + l.rotary_size});
  both = g.view(std::move(both), {s, b, sizes_.heads, l.key_size + l.value_size});
  parts = l.fused_rotary
              ? by_fused_kernels(g, std::move(query), std::move(both), std::move(positions))
              : by_plain_operators(g, std::move(query), std::move(both), std::move(positions));
  const CoreAttention core{.queries = s,
                           .keys = s,
                           .heads = sizes_.heads,
                           .kv_heads = sizes_.heads,
                           .key_size = l.key_size + l.rotary_size,
                           .value_size = l.value_size,
                           .lie_apart = true};
  Var context = core(g, sizes_.stage, std::move(parts), given, name_);
  return g.apply(OpKind::te_row_linear, {std::move(context), proj_weight_},
                 in_fp8(divided(sizes_.stage.rank), sizes_.stage.model, true));
}

}  // namespace headroom::model
