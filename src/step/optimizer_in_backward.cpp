#include "step/optimizer_in_backward.h"

namespace headroom::step {

OptimizerInBackward::OptimizerInBackward(const OptimizerOptions& options,
                                         const std::vector<OptimizedParameter>& parameters) {
  for (const OptimizedParameter& parameter : parameters) {
    optimizers_.emplace(parameter.tensor.get(), make_optimizer(options, {parameter}));
  }
}

void OptimizerInBackward::step(const op::Tensor& parameter, op::Eager& eager, Recorder& recorder) {
  const auto found = optimizers_.find(parameter.get());
  if (found == optimizers_.end()) return;
  const CategoryScope scope(recorder, memory::Category::temporary);
  found->second->step(eager, recorder);
  parameter->grad = op::Tensor();
}

}  // namespace headroom::step
