// What all optimizers share: a parameter with its states, the lists that torch.optim makes of them,
// and how states are made. For the files step/optimizer*.cpp only.
#pragma once

#include <vector>

#include "step/optimizer.h"

namespace headroom::step {

struct Slot {
  OptimizedParameter parameter;
  std::vector<op::Tensor> states;
  bool is_initialized = false;

  [[nodiscard]] const op::Tensor& tensor() const { return parameter.tensor; }
  [[nodiscard]] const op::Tensor& grad() const { return parameter.tensor->grad; }
};
using SlotList = std::vector<Slot*>;

[[nodiscard]] std::vector<Slot> make_slots(const std::vector<OptimizedParameter>& parameters);

// The slots with gradients, by parameter group (Trainer makes two), in the order of the parameters.
[[nodiscard]] std::vector<SlotList> parameter_groups(std::vector<Slot>& slots, bool decay_groups);
// A group's slots by the parameters' type: what foreach and fused kernels take at once.
[[nodiscard]] std::vector<SlotList> by_type(const SlotList& group);

// A zeroed state in its category.
op::Tensor make_state(op::Eager& eager, Recorder& recorder, const Slot& slot, const op::Dims& sizes,
                      op::DType dtype);
op::Tensor make_state_like(op::Eager& eager, Recorder& recorder, const Slot& slot,
                           const op::Tensor& like, op::DType dtype);

// What kernels move between the device's memory and its units.
struct Traffic {
  int64_t read_bytes = 0;
  int64_t written_bytes = 0;
};

// One kernel over a parameter, or several in a row that make and let go of nothing.
void update_kernel(op::Eager& eager, const op::Tensor& parameter, const Traffic& traffic);

// Parameter, gradient and states are read once; but for the gradient they are written once.
[[nodiscard]] Traffic fused_traffic(const Slot& slot);

[[nodiscard]] std::unique_ptr<Optimizer> make_adam(const OptimizerOptions& options,
                                                   const std::vector<OptimizedParameter>& list);
[[nodiscard]] std::unique_ptr<Optimizer> make_offloaded(
    const OptimizerOptions& options, const std::vector<OptimizedParameter>& list);
[[nodiscard]] std::unique_ptr<Optimizer> make_sgd(const OptimizerOptions& options,
                                                  const std::vector<OptimizedParameter>& list);
[[nodiscard]] std::unique_ptr<Optimizer> make_adafactor(
    const OptimizerOptions& options, const std::vector<OptimizedParameter>& list);
[[nodiscard]] std::unique_ptr<Optimizer> make_bitsandbytes(
    const OptimizerOptions& options, const std::vector<OptimizedParameter>& list);

}  // namespace headroom::step
