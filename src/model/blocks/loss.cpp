#include "model/blocks/loss.h"

namespace headroom::model {

Var causal_lm_loss(GraphBuilder& g, const BuildOptions& options, const Var& logits_in,
                   const Var& labels_in, int64_t vocabulary) {
  RegionScope region(g, RegionKind::loss, "loss", {&logits_in, &labels_in});
  Var logits = g.to(logits_in, DType::f32);
  Var labels = g.pad(labels_in, {0, 1});
  Var shift_labels = g.contiguous(g.slice(labels, -1, 1, options.sequence + 1));
  logits = g.view(logits, {-1, vocabulary});
  shift_labels = g.view(shift_labels, {-1});
  Var loss = g.cross_entropy(logits, shift_labels);
  region.leave({&loss});
  return loss;
}

}  // namespace headroom::model
