// torch.optim.Adam and AdamW. Source: torch/optim/adam.py (2.x).
#include "step/optimizer_slots.h"

namespace headroom::step {

using op::Eager;
using op::Tensor;

namespace {

class Adam : public Optimizer {
 public:
  Adam(const OptimizerOptions& options, const std::vector<OptimizedParameter>& parameters)
      : options_(options), slots_(make_slots(parameters)) {}

  void step(Eager& e, Recorder& recorder) override {
    op::GradMode no_grad(e, false);
    for (const SlotList& group : parameter_groups(slots_, options_.decay_groups)) {
      for (Slot* slot : group) initialize(e, recorder, *slot);
      if (options_.implementation == OptimizerImplementation::loop) {
        update_in_loop(e, group);
        continue;
      }
      for (const SlotList& list : by_type(group)) {
        if (options_.implementation == OptimizerImplementation::foreach) {
          update_foreach(e, list);
        } else {
          for (const Slot* slot : list) update_kernel(e, slot->tensor(), 4);
        }
      }
    }
  }

 private:
  // A step count on the device where the kernel is fused, then the two or three moments.
  void initialize(Eager& e, Recorder& recorder, Slot& slot) {
    if (slot.is_initialized) return;
    slot.is_initialized = true;
    const bool is_fused = options_.implementation == OptimizerImplementation::fused;
    if (is_fused && !options_.counts_on_host) {
      step_counts_.push_back(make_state(e, recorder, slot, {}, op::DType::f32));
    }
    const int moments = options_.amsgrad ? 3 : 2;
    for (int i = 0; i < moments; ++i) {
      slot.states.push_back(
          make_state_like(e, recorder, slot, slot.tensor(), slot.tensor().dtype()));
    }
  }

  // Adam adds the decay to a copy of the gradients; AdamW shrinks the parameters in place.
  [[nodiscard]] bool copies_gradients() const {
    return options_.weight_decay && options_.kind == OptimizerKind::adam;
  }

  void update_foreach(Eager& e, const SlotList& list) {
    std::vector<Tensor> decayed;
    for (const Slot* slot : list) {
      if (copies_gradients()) decayed.push_back(e.empty_like(slot->grad(), slot->grad().dtype()));
      update_kernel(e, slot->tensor(), 3);
    }
    decayed.clear();
    std::vector<Tensor> denominators;
    for (const Slot* slot : list) {
      const Tensor& second = slot->states.back();
      denominators.push_back(e.empty_like(second, second.dtype()));
    }
    for (const Slot* slot : list) update_kernel(e, slot->tensor(), 3);
  }

  // Names of one round live until the next one takes them.
  void update_in_loop(Eager& e, const SlotList& list) {
    Tensor gradient;
    Tensor denominator;
    for (const Slot* slot : list) {
      gradient = Tensor();
      if (copies_gradients()) gradient = e.empty_like(slot->grad(), slot->grad().dtype());
      update_kernel(e, slot->tensor(), 3);
      const Tensor& second = slot->states.back();
      Tensor root = e.empty_like(second, second.dtype());
      e.kernel(op::OpKind::sqrt, 0, root.bytes(), root.bytes());
      Tensor quotient = op::div_scalar(e, root, 1);
      root = Tensor();
      denominator = std::move(quotient);
      update_kernel(e, slot->tensor(), 3);
    }
  }

  OptimizerOptions options_;
  std::vector<Slot> slots_;
  std::vector<Tensor> step_counts_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adam(const OptimizerOptions& options,
                                     const std::vector<OptimizedParameter>& list) {
  return std::make_unique<Adam>(options, list);
}

}  // namespace headroom::step
