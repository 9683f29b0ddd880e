#include "step/gradient_record.h"

#include <algorithm>
#include <utility>

namespace headroom::step {

using op::Tensor;

GradientRecords gradients_of(const std::vector<OptimizedParameter>& parameters) {
  GradientRecords gradients;
  gradients.reserve(parameters.size());
  for (const OptimizedParameter& parameter : parameters) {
    auto& gradient = gradients.emplace_back();
    if (const Tensor& grad = parameter.tensor->grad) {
      gradient = {grad.sizes(), grad.strides(), grad.dtype(), grad->storage->buffer};
    }
  }
  return gradients;
}

void hang_gradients(op::Eager& eager, const std::vector<OptimizedParameter>& parameters,
                    const GradientRecords& gradients,
                    const std::function<uint32_t(uint32_t buffer)>& block_of) {
  std::vector<std::pair<uint32_t, size_t>> order;  // by block: who shares one shares it again
  order.reserve(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (gradients[i]) order.emplace_back(gradients[i]->buffer, i);
  }
  std::ranges::sort(order);
  Tensor holder;
  for (size_t at = 0; at < order.size(); ++at) {
    const auto [buffer, i] = order[at];
    const GradientRecord& gradient = *gradients[i];
    if (at == 0 || buffer != order[at - 1].first) {
      holder = eager.adopt(block_of(buffer), gradient.sizes, gradient.strides, gradient.dtype);
    }
    Tensor grad = eager.alias(holder, gradient.sizes, gradient.strides);
    grad->base = Tensor();
    grad->dtype = gradient.dtype;
    parameters[i].tensor->grad = std::move(grad);
  }
}

}  // namespace headroom::step
