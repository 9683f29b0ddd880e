#include "model/blocks/loss.h"

namespace headroom::model {

namespace {

// Since then labels are padded and shifted instead of the logits, which saves a copy of the logits
// (transformers' loss/loss_utils.py).
constexpr op::Version kShiftsLabelsOnly{4, 49};

Var shifted_labels_loss(GraphBuilder& g, const BuildOptions& options, const Var& logits_in,
                        const Var& labels_in, int64_t vocabulary) {
  Var logits = g.to(logits_in, DType::f32);
  const Var labels = g.pad(labels_in, {0, 1});
  Var shift_labels = g.contiguous(g.slice(labels, -1, 1, options.sequence + 1));
  logits = g.view(logits, {-1, vocabulary});
  shift_labels = g.view(shift_labels, {-1});
  return g.cross_entropy(logits, shift_labels);
}

Var shifted_logits_loss(GraphBuilder& g, const BuildOptions& options, const Var& logits,
                        const Var& labels, int64_t vocabulary) {
  Var shift_logits = g.contiguous(g.slice(logits, -2, 0, options.sequence - 1));
  Var shift_labels = g.contiguous(g.slice(labels, -1, 1, options.sequence));
  shift_logits = g.view(shift_logits, {-1, vocabulary});
  shift_labels = g.view(shift_labels, {-1});
  return g.cross_entropy(shift_logits, shift_labels);
}

Var loss_by_version(GraphBuilder& g, const BuildOptions& options, Var& logits, const Var& labels,
                    int64_t vocabulary, const OwnLoss& own) {
  if (options.transformers >= kShiftsLabelsOnly) {
    return shifted_labels_loss(g, options, logits, labels, vocabulary);
  }
  if (options.transformers >= own.until) {
    const Var wide = g.to(logits, DType::f32);
    return shifted_logits_loss(g, options, wide, labels, vocabulary);
  }
  if (own.float32) logits = g.to(std::move(logits), DType::f32);
  return shifted_logits_loss(g, options, logits, labels, vocabulary);
}

}  // namespace

Var token_loss(GraphBuilder& g, const BuildOptions& options, const Var& logits, const Var& labels,
               int64_t classes) {
  if (!options.labels) return {};
  RegionScope region(g, RegionKind::loss, "loss", {&logits, &labels});
  Var loss;
  {
    const Var rows = g.view(logits, {-1, classes});
    loss = g.cross_entropy(rows, g.view(labels, {-1}));
  }
  region.leave({&loss});
  return loss;
}

Var wide_token_loss(GraphBuilder& g, const BuildOptions& options, const Var& logits,
                    const Var& labels, int64_t classes) {
  if (!options.labels) return {};
  RegionScope region(g, RegionKind::loss, "loss", {&logits, &labels});
  Var rows = g.to(logits, DType::f32);
  rows = g.view(rows, {-1, classes});
  Var loss = g.cross_entropy(rows, g.view(labels, {-1}));
  region.leave({&loss});
  return loss;
}

Var causal_lm_loss(GraphBuilder& g, const BuildOptions& options, Var& logits, const Var& labels,
                   int64_t vocabulary, const OwnLoss& own) {
  RegionScope region(g, RegionKind::loss, "loss", {&logits, &labels});
  Var loss = loss_by_version(g, options, logits, labels, vocabulary, own);
  region.leave({&loss});
  return loss;
}

}  // namespace headroom::model
