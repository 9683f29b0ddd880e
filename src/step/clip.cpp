#include "step/clip.h"

namespace headroom::step {

using op::OpKind;
using op::Tensor;

void clip_gradients(op::Eager& e, const std::vector<OptimizedParameter>& parameters) {
  op::GradMode no_grad(e, false);
  std::vector<Tensor> norms;
  for (const OptimizedParameter& parameter : parameters) {
    const Tensor& grad = parameter.tensor->grad;
    if (!grad) continue;
    norms.push_back(e.empty({}, grad.dtype()));
    e.kernel(OpKind::sum, 2.0 * static_cast<double>(grad.elements()), grad.bytes(), 4);
  }
  if (norms.empty()) return;
  const Tensor stacked = op::stack(e, norms, 0);
  const Tensor total = e.empty({}, stacked.dtype());
  const Tensor shifted = op::add_scalar(e, total, 1e-6);
  const Tensor coefficient = op::div_scalar(e, shifted, 1);
  const Tensor clamped = op::clamp(e, coefficient);
  for (const OptimizedParameter& parameter : parameters) {
    const Tensor& grad = parameter.tensor->grad;
    if (grad) {
      e.kernel(OpKind::mul, static_cast<double>(grad.elements()), grad.bytes(), grad.bytes());
    }
  }
}

}  // namespace headroom::step
