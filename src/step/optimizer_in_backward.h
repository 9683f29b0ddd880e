// Stepping in backward: every parameter has an optimizer of its own, which steps as soon as the
// gradient has arrived and lets it go (Tensor.register_post_accumulate_grad_hook). So there are
// never many gradients at once, nor temporaries of more than one parameter. No clipping by the norm
// of all and no accumulation, which would need them. States are made in the first backward.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "step/optimizer.h"

namespace headroom::step {

class OptimizerInBackward {
 public:
  OptimizerInBackward(const OptimizerOptions& options,
                      const std::vector<OptimizedParameter>& parameters);

  // The hook: `parameter` has its gradient.
  void step(const op::Tensor& parameter, op::Eager& eager, Recorder& recorder);

 private:
  std::unordered_map<const op::TensorImpl*, std::unique_ptr<Optimizer>> optimizers_;
};

}  // namespace headroom::step
