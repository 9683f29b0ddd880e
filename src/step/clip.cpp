#include "step/clip.h"

#include <algorithm>

#include "operator/scratch.h"
#include "step/type_groups.h"

namespace headroom::step {

using op::Eager;
using op::OpKind;
using op::Tensor;

namespace {

// _foreach_norm of a list of one type: partial norms in one buffer, then a number a tensor.
void append_norms(Eager& e, const std::vector<Tensor>& grads, std::vector<Tensor>& norms) {
  int64_t largest = 0;
  for (const Tensor& grad : grads) largest = std::max(largest, grad.elements());
  const op::DType type = grads[0].dtype();
  const Tensor partial =
      e.scratch(op::foreach_norm_bytes(static_cast<int64_t>(grads.size()), largest, type));
  for (const Tensor& grad : grads) {
    norms.push_back(e.empty({}, type));
    e.kernel(OpKind::sum, 2.0 * static_cast<double>(grad.elements()), grad.bytes(), 4);
  }
}

Tensor total_norm(Eager& e, const std::vector<OptimizedParameter>& parameters) {
  std::vector<Tensor> all;
  for (const OptimizedParameter& parameter : parameters) {
    if (parameter.tensor->grad) all.push_back(parameter.tensor->grad);
  }
  std::vector<Tensor> norms;
  for (const auto& grads : grouped_by_type(all, [](const Tensor& grad) { return grad.dtype(); })) {
    append_norms(e, grads, norms);
  }
  if (norms.empty()) return {};
  const Tensor stacked = op::stack(e, norms, 0);
  return e.empty({}, stacked.dtype());
}

}  // namespace

// max_norm / (total + 1e-6), clamped to one, times every gradient in place.
void clip_gradients(Eager& e, const std::vector<OptimizedParameter>& parameters) {
  op::GradMode no_grad(e, false);
  const Tensor total = total_norm(e, parameters);
  if (!total) return;
  Tensor shifted = op::add_scalar(e, total, 1e-6);
  Tensor reciprocal = op::div_scalar(e, shifted, 1);
  const Tensor coefficient = op::mul_scalar(e, reciprocal, 1);
  reciprocal = Tensor();
  shifted = Tensor();
  const Tensor clamped = op::clamp(e, coefficient);
  for (const OptimizedParameter& parameter : parameters) {
    const Tensor& grad = parameter.tensor->grad;
    if (!grad) continue;
    e.kernel(OpKind::mul, static_cast<double>(grad.elements()), grad.bytes(), grad.bytes());
  }
}

}  // namespace headroom::step
