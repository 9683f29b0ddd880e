// DeBERTa-v2's attention: to the scores of queries and keys, those of queries and of keys with
// embeddings of the distance between them are added.
#pragma once

#include <optional>
#include <string>

#include "model/blocks/linear.h"
#include "model/builder.h"
#include "model/options.h"

namespace headroom::model {

struct DebertaAttentionShape {
  int64_t hidden = 0, heads = 0;
  // Distances on either side that have an embedding; buckets of distances, where there are any.
  int64_t span = 0;
  bool buckets = false;
  bool relative = false;            // distances count at all
  bool from_query = false;          // "c2p": queries ask about distances
  bool from_key = false;            // "p2c": keys do
  bool shares_projections = false;  // distances go through the projections of tokens
  double dropout = 0;               // of the weights
  double distance_dropout = 0;

  [[nodiscard]] int64_t head_dim() const { return hidden / heads; }
};

// What all layers are given, made once.
struct DebertaShared {
  Var mask;        // [batch, 1, sequence, sequence], in float32
  Var distances;   // [1, sequence, sequence]; empty, as the embeddings, where none count
  Var embeddings;  // [2 * span, hidden]
};

class DebertaAttention {
 public:
  DebertaAttention(GraphBuilder& g, const DebertaAttentionShape& shape, const std::string& name);
  // [batch, sequence, hidden], before the projection at the end.
  [[nodiscard]] Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                               const DebertaShared& shared) const;

 private:
  [[nodiscard]] Var heads_of(GraphBuilder& g, Var projected, int64_t batch, int64_t length) const;
  [[nodiscard]] Var bias(GraphBuilder& g, const BuildOptions& options, const Var& query,
                         const Var& key, const DebertaShared& shared, const Var& embeddings) const;
  [[nodiscard]] Var looked_up(GraphBuilder& g, const BuildOptions& options, const Var& scores,
                              const Var& places) const;

  DebertaAttentionShape shape_;
  Linear query_, key_, value_;
  std::optional<Linear> distance_key_, distance_query_;
};

// Of each position from each, in buckets that widen with distance where the model has them:
// [1, sequence, sequence].
[[nodiscard]] Var deberta_distances(GraphBuilder& g, int64_t sequence, bool buckets);

}  // namespace headroom::model
