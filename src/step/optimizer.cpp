#include "step/optimizer.h"

#include "step/optimizer_slots.h"

namespace headroom::step {

OptimizedParameter optimized_parameter(op::Tensor tensor, const model::Parameter& parameter) {
  using model::ParameterRole;
  OptimizedParameter optimized;
  optimized.tensor = std::move(tensor);
  optimized.is_lm_head = parameter.role == ParameterRole::lm_head;
  optimized.decays = parameter.role != ParameterRole::norm && parameter.role != ParameterRole::bias;
  optimized.is_expert = parameter.role == ParameterRole::expert;
  optimized.is_embedding = parameter.role == ParameterRole::embedding;
  optimized.chunk = parameter.chunk;
  return optimized;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                          const std::vector<OptimizedParameter>& parameters) {
  if (options.states_on_cpu) return make_offloaded(options, parameters);
  switch (options.kind) {
    case OptimizerKind::sgd:
      return make_sgd(options, parameters);
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
      return make_adam(options, parameters);
    case OptimizerKind::adafactor:
    case OptimizerKind::hf_adafactor:
      return make_adafactor(options, parameters);
    case OptimizerKind::bitsandbytes:
      return make_bitsandbytes(options, parameters);
  }
  return make_adam(options, parameters);
}

}  // namespace headroom::step
