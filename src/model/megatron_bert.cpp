#include "model/megatron_bert.h"

#include <utility>

namespace headroom::model {

namespace {

constexpr int64_t kTokenTypes = 2;

}  // namespace

BertTokenTypes::BertTokenTypes(GraphBuilder& g, const MegatronSizes& sizes)
    : sizes_(sizes),
      table_(g.parameter("embedding.tokentype_embeddings.weight",
                         {kTokenTypes, sizes.stage.model.hidden}, ParameterRole::embedding)) {}

Var BertTokenTypes::operator()(GraphBuilder& g, Var x) const {
  const Var types =
      g.input("tokentype_ids", {sizes_.stage.micro_batch, sizes_.local_sequence}, DType::i64);
  return g.add(std::move(x), g.permute(g.embedding(table_, types), {1, 0, 2}));
}

BertHead::BertHead(GraphBuilder& g, const MegatronSizes& sizes) : sizes_(sizes) {
  const MegatronModel& m = sizes.stage.model;
  const int64_t h = m.hidden;
  dense_weight_ = g.parameter("lm_head.dense.weight", {h, h}, ParameterRole::linear);
  dense_bias_ = g.parameter("lm_head.dense.bias", {h}, ParameterRole::bias);
  norm_ = MegatronNorm(g, "lm_head.layer_norm.", m, h);
  vocabulary_bias_ = g.parameter(
      "output_layer.bias", {m.padded_vocabulary / sizes.stage.rank.tensor}, ParameterRole::bias);
  binary_weight_ = g.parameter("binary_head.weight", {2, h}, ParameterRole::linear);
  binary_bias_ = g.parameter("binary_head.bias", {2}, ParameterRole::bias);
  pooler_weight_ = g.parameter("pooler.dense.weight", {h, h}, ParameterRole::linear);
  pooler_bias_ = g.parameter("pooler.dense.bias", {h}, ParameterRole::bias);
}

Var BertHead::operator()(GraphBuilder& g, Var x) const {
  x = g.gelu(g.linear(std::move(x), dense_weight_, dense_bias_), false);
  return g.apply(OpKind::te_norm, {std::move(x), norm_.weight, norm_.bias});
}

Var BertHead::sentence_loss(GraphBuilder& g, const Var& x) const {
  Var pooled = g.tanh(g.linear(g.select(x, 0, 0), pooler_weight_, pooler_bias_));
  Var logits = g.linear(std::move(pooled), binary_weight_, binary_bias_);
  const Var order = g.input("is_random", {sizes_.stage.micro_batch}, DType::i64);
  return g.cross_entropy(g.to(std::move(logits), DType::f32), order);
}

}  // namespace headroom::model
