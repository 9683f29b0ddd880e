#include "step/gradient_record.h"

#include <map>

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
  std::map<uint32_t, Tensor> holders;  // gradients that share a block share it again
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!gradients[i]) continue;
    const GradientRecord& gradient = *gradients[i];
    Tensor& holder = holders[gradient.buffer];
    if (!holder) {
      holder =
          eager.adopt(block_of(gradient.buffer), gradient.sizes, gradient.strides, gradient.dtype);
    }
    Tensor grad = eager.alias(holder, gradient.sizes, gradient.strides);
    grad->base = Tensor();
    grad->dtype = gradient.dtype;
    parameters[i].tensor->grad = std::move(grad);
  }
}

}  // namespace headroom::step
