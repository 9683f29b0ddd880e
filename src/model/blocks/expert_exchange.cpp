#include "model/blocks/expert_exchange.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace headroom::model {

namespace {

int64_t tokens_of(const BuildOptions& options) { return options.batch * options.sequence; }

Var exchanged(GraphBuilder& g, Var rows, int64_t arriving) {
  Attributes attributes;
  attributes.ints = {arriving};
  return g.apply(OpKind::exchange_rows, {std::move(rows)}, std::move(attributes));
}

// How many rows go to each expert of each rank, and come; the host reads how many of each rank.
std::array<Var, 2> exchanged_counts(GraphBuilder& g, const BuildOptions& options,
                                    const ExpertsShape& shape, const Var& experts) {
  const int64_t ranks = options.expert_ranks;
  Var counts = g.full({shape.experts}, DType::i64);
  {
    Var ones = g.full({tokens_of(options) * shape.top_k}, DType::i64);
    counts = g.scatter_assign(std::move(counts), 0, experts, std::move(ones));
  }
  counts = g.view(std::move(counts), {ranks, shape.experts / ranks});
  Var arriving = exchanged(g, counts, ranks);
  const Var by_rank[] = {g.sum(counts, {1}, false), g.sum(arriving, {1}, false)};
  g.apply(OpKind::read_back, {g.stack(by_rank, 0)});
  return {std::move(counts), std::move(arriving)};
}

}  // namespace

int64_t arrived_rows(const BuildOptions& options, const ExpertsShape& shape) {
  const int64_t sent = tokens_of(options) * shape.top_k;
  const int64_t here = shape.experts / options.expert_ranks;
  // A token goes to an expert once.
  const int64_t most = tokens_of(options) * options.expert_ranks * std::min(here, shape.top_k);
  const auto share = std::llround(static_cast<double>(sent) * options.expert_share);
  return std::clamp<int64_t>(share, 1, std::max<int64_t>(most, 1));
}

ArrivedRows send_to_experts(GraphBuilder& g, const BuildOptions& options, const ExpertsShape& shape,
                            const Var& x, const Var& chosen) {
  const int64_t arriving = arrived_rows(options, shape);
  ArrivedRows arrived;
  const Var experts = g.reshape(chosen, {-1});
  arrived.order = g.sort(experts)[1];
  const Var sent = g.index(x, g.floor_divide(arrived.order, static_cast<double>(shape.top_k)));
  const auto counts = exchanged_counts(g, options, shape, experts);
  arrived.rows = exchanged(g, sent, arriving);
  arrived.experts =
      g.repeat(g.arange(shape.experts / options.expert_ranks), {options.expert_ranks});
  arrived.experts = g.index_select(arrived.experts, 0, g.empty({arriving}, DType::i64));
  arrived.experts = g.unsqueeze(arrived.experts, -1);
  arrived.weights = g.full_like({arriving, 1}, x);
  return arrived;
}

Var take_from_experts(GraphBuilder& g, const BuildOptions& options, const ExpertsShape& shape,
                      const Var& outputs, const Var& weights, const Var& order) {
  const int64_t sent = tokens_of(options) * shape.top_k;
  const Var returned = exchanged(g, outputs, sent);
  Var in_order = g.empty_like({sent, shape.hidden}, returned);
  in_order = g.index_put(std::move(in_order), order, returned);
  in_order = g.view(std::move(in_order), {tokens_of(options), shape.top_k, shape.hidden});
  return g.sum(g.mul(in_order, g.unsqueeze(weights, -1)), {1}, false);
}

}  // namespace headroom::model
