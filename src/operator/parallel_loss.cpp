// Cross entropy of logits of which each tensor-parallel rank has a part of the classes, as
// PyTorch's loss_parallel() has it: maxima, sums and the targets' own numbers are reduced among the
// ranks; the log-probabilities are kept, and backward makes the gradient from them in four passes.
//
// Source: torch/distributed/tensor: parallel/loss.py, _ops/_embedding_ops.py (_MaskPartial)
// (PyTorch 2.13).
#include "operator/functional.h"

namespace headroom::op {

namespace {

// Functional collectives leave what they are given alone.
Tensor reduced(Eager& e, const Tensor& own) {
  Tensor out = e.empty(own.sizes(), own.dtype());
  e.collective(OpKind::all_reduce, own.bytes(), out.bytes());
  return out;
}

Tensor log_softmax_of_part(Eager& e, const Tensor& logits) {
  const int along[] = {1};
  Tensor most = amax(e, logits, 1, true);
  most = reduced(e, most);
  const Tensor shifted = sub(e, logits, most);
  Tensor sums = sum(e, exp(e, shifted), along, true);
  sums = reduced(e, sums);
  const Tensor logs = log(e, sums);
  return sub(e, shifted, logs);
}

// What of the targets is this rank's, and which are not.
struct OwnTargets {
  Tensor mask;
  Tensor indices;
};
OwnTargets own_targets(Eager& e, const Tensor& target) {
  Tensor below = compare(e, target, nullptr);
  Tensor above = compare(e, target, nullptr);
  OwnTargets own;
  own.mask = compare(e, below, &above);
  below = above = Tensor();
  const Tensor copy = clone(e, target);
  own.indices = add_scalar(e, copy, 0);
  e.kernel(OpKind::masked_fill, 0, own.mask.bytes(), own.indices.bytes());
  return own;
}

// Where the target is not the one to be ignored.
Tensor unless_ignored(Eager& e, const Tensor& target, const Tensor& value) {
  const Tensor is_counted = compare(e, target, nullptr);
  return where(e, is_counted, value, value);
}

struct LossOfPart {
  Tensor loss;
  Tensor total_weight;
};
LossOfPart nll_of_part(Eager& e, const Tensor& log_probabilities, const Tensor& target) {
  const Tensor safe = unsqueeze(e, unless_ignored(e, target, target), 1);
  OwnTargets own = own_targets(e, safe);
  const Tensor part = gather(e, log_probabilities, 1, own.indices);
  e.kernel(OpKind::masked_fill, 0, own.mask.bytes(), part.bytes());
  own.mask = Tensor();
  const Tensor all = reduced(e, part);
  Tensor losses = neg(e, squeeze(e, all, 1));
  losses = unless_ignored(e, target, losses);
  Tensor count;
  {
    const Tensor is_counted = compare(e, target, nullptr);
    count = sum(e, is_counted, {}, false);
  }
  count = to(e, count, log_probabilities.dtype());
  const Tensor total = sum(e, losses, {}, false);
  return {div(e, total, count), count};
}

void loss_backward(Eager& e, Node& n, Grads& grads, Grads& results) {
  const Tensor& log_probabilities = n.saved[0];
  const Tensor& target = n.saved[1];
  Tensor scale = div(e, grads[0], n.saved[2]);
  const Tensor safe = unless_ignored(e, unsqueeze(e, target, 1), unsqueeze(e, target, 1));
  const Tensor gradient = zeros_like(e, log_probabilities);
  const OwnTargets own = own_targets(e, view(e, safe, {-1}));
  Tensor update = to(e, own.mask, gradient.dtype());
  update = add_scalar(e, update, -1);
  const Tensor rows = arange(e, target.elements(), DType::i64);
  e.kernel(OpKind::index_put, 0, update.bytes() + rows.bytes() + own.indices.bytes(),
           update.bytes());
  {
    const Tensor is_counted = compare(e, unsqueeze(e, target, 1), nullptr);
    scale = where(e, is_counted, scale, scale);
  }
  Tensor sums = add(e, gradient, exp(e, log_probabilities));
  results[0] = mul(e, sums, scale);
}

}  // namespace

Tensor parallel_loss(Eager& e, const Tensor& logits, const Tensor& target) {
  Tensor log_probabilities;
  LossOfPart made;
  {
    const GradMode no_grad(e, false);
    log_probabilities = log_softmax_of_part(e, logits);
    made = nll_of_part(e, log_probabilities, target);
  }
  if (Node* node = e.history("NllLossBackward0", {&logits}, {&made.loss})) {
    node->save(log_probabilities);
    node->save(target);
    node->save(made.total_weight);
    node->apply = &loss_backward;
    e.finish(*node);
  }
  return made.loss;
}

}  // namespace headroom::op
