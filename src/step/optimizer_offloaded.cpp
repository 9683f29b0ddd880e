// An optimizer whose states and steps are on the CPU, as torchao's CPUOffloadOptimizer: each
// parameter has a copy in pinned memory, its gradient is copied there as it arrives and stays on
// the device until zero_grad, and the stepped copy comes back into the parameter. So the device
// sees nothing, except for parameters below kSmall elements, which an optimizer on the device steps
// (fused, where it is AdamW). Source: torchao/optim/cpu_offload.py.
#include "step/optimizer_slots.h"

namespace headroom::step {

namespace {

constexpr int64_t kSmall = 4096;  // elements

}  // namespace

std::unique_ptr<Optimizer> make_offloaded(const OptimizerOptions& options,
                                          const std::vector<OptimizedParameter>& list) {
  OptimizerOptions on_device = options;
  on_device.states_on_cpu = false;
  if (options.kind == OptimizerKind::adamw) {
    on_device.implementation = OptimizerImplementation::fused;
  }
  std::vector<OptimizedParameter> small;
  for (const OptimizedParameter& parameter : list) {
    if (parameter.tensor.elements() < kSmall) small.push_back(parameter);
  }
  return make_optimizer(on_device, small);
}

}  // namespace headroom::step
