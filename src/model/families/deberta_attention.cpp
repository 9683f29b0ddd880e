#include "model/families/deberta_attention.h"

#include <utility>

namespace headroom::model {

namespace {

// make_log_bucket_position. Where a kernel of the same size does not matter, one stands for
// another: a sign and an absolute value are negations, a ceiling is a product.
Var in_buckets(GraphBuilder& g, const Var& relative) {
  const Var sign = g.neg(relative);
  Var distance;
  {
    Var is_near = g.compare(relative);
    is_near = g.compare(std::move(is_near), g.compare(relative));
    Var middle = g.full({}, DType::i64);
    Var absolute = g.neg(relative);
    distance = g.where(std::move(is_near), std::move(middle), std::move(absolute));
  }
  Var bucket = g.div(g.log(g.to(distance, DType::f32)), 1.0);
  bucket = g.add(g.mul(g.mul(std::move(bucket), 1.0), 1.0), 1.0);
  Var is_exact = g.compare(distance);
  Var exact = g.to(relative, DType::f32);
  return g.where(std::move(is_exact), std::move(exact), g.mul(bucket, sign));
}

}  // namespace

Var deberta_distances(GraphBuilder& g, int64_t sequence, bool buckets) {
  const Var queries = g.arange(sequence);
  const Var keys = g.arange(sequence);
  Var relative = g.sub(g.unsqueeze(queries, 1), g.unsqueeze(keys, 0));
  if (buckets) relative = in_buckets(g, relative);
  relative = g.to(relative, DType::i64);
  return g.unsqueeze(relative, 0);
}

DebertaAttention::DebertaAttention(GraphBuilder& g, const DebertaAttentionShape& s,
                                   const std::string& name)
    : shape_(s),
      query_(g, name + ".query_proj", s.hidden, s.hidden, true),
      key_(g, name + ".key_proj", s.hidden, s.hidden, true),
      value_(g, name + ".value_proj", s.hidden, s.hidden, true) {
  if (!s.relative || s.shares_projections) return;
  if (s.from_query) distance_key_.emplace(g, name + ".pos_key_proj", s.hidden, s.hidden, true);
  if (s.from_key) distance_query_.emplace(g, name + ".pos_query_proj", s.hidden, s.hidden, true);
}

// transpose_for_scores
Var DebertaAttention::heads_of(GraphBuilder& g, Var projected, int64_t batch,
                               int64_t length) const {
  Var x = g.view(std::move(projected), {batch, length, shape_.heads, -1});
  x = g.contiguous(g.permute(std::move(x), {0, 2, 1, 3}));
  return g.view(std::move(x), {-1, length, shape_.head_dim()});
}

// The scores of the distances that there are: [batch * heads, sequence, sequence].
Var DebertaAttention::looked_up(GraphBuilder& g, const BuildOptions& options, const Var& scores,
                                const Var& places) const {
  const int64_t s = options.sequence;
  return g.gather(scores, -1, g.expand(g.squeeze(places, 0), {options.batch * shape_.heads, s, s}));
}

// disentangled_attention_bias
Var DebertaAttention::bias(GraphBuilder& g, const BuildOptions& options, const Var& query,
                           const Var& key, const DebertaShared& shared, const Var& dropped) const {
  const Var relative = g.unsqueeze(shared.distances, 1);
  const Var embeddings = g.unsqueeze(dropped, 0);
  const auto heads = [&](const Linear& projection) {
    return g.repeat(heads_of(g, projection(g, embeddings), 1, 2 * shape_.span),
                    {options.batch, 1, 1});
  };
  const bool shares = shape_.shares_projections;
  Var distance_query, distance_key;
  if (shares) distance_query = heads(query_);
  if (shares || distance_key_) distance_key = heads(shares ? key_ : *distance_key_);
  if (distance_query_) distance_query = heads(*distance_query_);
  Var score, from_query, query_places, from_key, key_places;
  if (shape_.from_query) {
    from_query = g.bmm(query, g.transpose(distance_key, -1, -2));
    query_places = g.clamp(g.add(relative, 1.0), 2);
    from_query = looked_up(g, options, from_query, query_places);
    score = g.add(g.div(from_query, 1.0), 0.0);  // the first is added to the number 0
  }
  if (shape_.from_key) {
    key_places = g.clamp(g.add(g.neg(relative), 1.0), 2);
    from_key = g.bmm(key, g.transpose(distance_query, -1, -2));
    from_key = g.transpose(looked_up(g, options, from_key, key_places), -1, -2);
    Var scaled = g.div(from_key, 1.0);
    score = score ? g.add_assign(score, std::move(scaled)) : g.add(std::move(scaled), 0.0);
  }
  return score;
}

Var DebertaAttention::operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                                 const DebertaShared& shared) const {
  const int64_t b = options.batch;
  const int64_t s = options.sequence;
  const Var query = heads_of(g, query_(g, x), b, s);
  const Var key = heads_of(g, key_(g, x), b, s);
  const Var value = heads_of(g, value_(g, x), b, s);
  Var scores = g.bmm(query, g.div(g.transpose(key, -1, -2), 1.0));
  Var embeddings, distance_bias;
  if (shape_.relative) {
    embeddings = g.dropout(shared.embeddings, shape_.distance_dropout);
    distance_bias = bias(g, options, query, key, shared, embeddings);
    scores = g.add(scores, distance_bias);
  }
  scores = g.view(scores, {-1, shape_.heads, s, s});
  const Var mask = g.to(shared.mask, DType::boolean);
  scores = g.masked_fill(scores, g.compare(mask));
  Var weights = g.softmax(scores, -1);
  weights = g.dropout(weights, shape_.dropout);
  Var context = g.bmm(g.view(weights, {-1, s, s}), value);
  context = g.contiguous(
      g.permute(g.view(context, {-1, shape_.heads, s, shape_.head_dim()}), {0, 2, 1, 3}));
  return g.view(context, {b, s, -1});
}

}  // namespace headroom::model
