#include "model/blocks/loss.h"

namespace headroom::model {

namespace {

// Since then labels are padded and shifted instead of the logits, which saves a copy of the logits
// (transformers' loss/loss_utils.py).
constexpr op::Version kShiftsLabelsOnly{4, 50};

Var shifted_labels_loss(GraphBuilder& g, const BuildOptions& options, const Var& logits_in,
                        const Var& labels_in, int64_t vocabulary) {
  Var logits = g.to(logits_in, DType::f32);
  const Var labels = g.pad(labels_in, {0, 1});
  Var shift_labels = g.contiguous(g.slice(labels, -1, 1, options.sequence + 1));
  logits = g.view(logits, {-1, vocabulary});
  shift_labels = g.view(shift_labels, {-1});
  return g.cross_entropy(logits, shift_labels);
}

Var shifted_logits_loss(GraphBuilder& g, const BuildOptions& options, const Var& logits_in,
                        const Var& labels, int64_t vocabulary) {
  const Var logits = g.to(logits_in, DType::f32);
  Var shift_logits = g.contiguous(g.slice(logits, -2, 0, options.sequence - 1));
  Var shift_labels = g.contiguous(g.slice(labels, -1, 1, options.sequence));
  shift_logits = g.view(shift_logits, {-1, vocabulary});
  shift_labels = g.view(shift_labels, {-1});
  return g.cross_entropy(shift_logits, shift_labels);
}

}  // namespace

Var causal_lm_loss(GraphBuilder& g, const BuildOptions& options, const Var& logits,
                   const Var& labels, int64_t vocabulary) {
  RegionScope region(g, RegionKind::loss, "loss", {&logits, &labels});
  const auto loss_of = options.transformers >= kShiftsLabelsOnly ? shifted_labels_loss
                                                                 : shifted_logits_loss;
  Var loss = loss_of(g, options, logits, labels, vocabulary);
  region.leave({&loss});
  return loss;
}

}  // namespace headroom::model
