#include "model/megatron_linear.h"

#include <utility>

namespace headroom::model {

Var normed_columns(GraphBuilder& g, const MegatronStage& stage, const Var& x,
                   const MegatronNorm& norm, const Var& weight, const Var& bias,
                   const Var& gathered) {
  if (!stage.model.local) {
    return g.apply(OpKind::te_norm_linear, {x, norm.weight, norm.bias, weight, bias},
                   in_fp8(divided(stage.rank), stage.model));
  }
  const Var normed = g.apply(OpKind::te_norm, {x, norm.weight, norm.bias});
  return plain_columns(g, stage, normed, weight, bias, gathered);
}

Var plain_columns(GraphBuilder& g, const MegatronStage& stage, const Var& x, const Var& weight,
                  const Var& bias, const Var& gathered, bool is_kept_by_others) {
  if (!stage.model.local) {
    return g.apply(OpKind::te_column_linear, {x, weight, bias},
                   in_fp8(divided(stage.rank), stage.model, is_kept_by_others));
  }
  return g.apply(OpKind::column_linear, {x, weight, bias, gathered}, divided(stage.rank));
}

Var summed_rows(GraphBuilder& g, const MegatronStage& stage, Var x, const Var& weight,
                bool is_kept_by_others) {
  const MegatronRank& rank = stage.rank;
  if (!stage.model.local) {
    return g.apply(OpKind::te_row_linear, {std::move(x), weight},
                   in_fp8(divided(rank), stage.model, is_kept_by_others));
  }
  x = g.apply(OpKind::column_linear, {std::move(x), weight, Var(), Var()}, undivided(rank));
  if (rank.tensor <= 1) return x;
  if (!rank.sequence_parallel) return g.apply(OpKind::parallel_reduce, {std::move(x)});
  const int64_t h = stage.model.hidden;
  Attributes ranks;
  ranks.ints = {rank.tensor};
  x = g.apply(OpKind::sequence_scatter, {g.view(std::move(x), {-1, h})}, std::move(ranks));
  return g.view(std::move(x), {-1, stage.micro_batch, h});
}

}  // namespace headroom::model
