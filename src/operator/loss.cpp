// Negative log likelihood, and cross entropy as PyTorch composes it.
#include "operator/functional.h"

namespace headroom::op {

Tensor nll_loss(Eager& e, const Tensor& log_probabilities, const Tensor& target) {
  Tensor out = e.empty({}, log_probabilities.dtype());
  Tensor total_weight = e.empty({}, log_probabilities.dtype());
  e.kernel(OpKind::nll_loss, static_cast<double>(target.elements()),
           target.bytes() + target.elements() * element_size(log_probabilities.dtype()),
           out.bytes());
  if (Node* node = e.history("NllLossBackward0", {&log_probabilities}, {&out})) {
    node->save(log_probabilities);
    node->save(target);
    node->save(total_weight);
    node->apply = [](Eager& eager, Node& n, Grads&, Grads& result) {
      result[0] = zeros_like(eager, n.saved[0]);
    };
    e.finish(*node);
  }
  return out;
}

Tensor cross_entropy(Eager& e, const Tensor& logits, const Tensor& target) {
  return nll_loss(e, log_softmax(e, logits, 1), target);
}

}  // namespace headroom::op
