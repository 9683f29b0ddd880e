#include "step/optimizer.h"

#include <algorithm>
#include <map>

namespace headroom::step {

using memory::Category;
using op::DType;
using op::Eager;
using op::OpKind;
using op::Tensor;

namespace {

struct Slot {
  OptimizedParameter parameter;
  std::vector<Tensor> states;
  Tensor step_count;  // on the device for fused implementations
};

void update_kernel(Eager& e, const Tensor& parameter, int64_t tensors) {
  e.kernel(OpKind::optimizer_update, 10.0 * static_cast<double>(parameter.elements()),
           tensors * parameter.bytes(), tensors * parameter.bytes());
}

// Groups as torch.optim does: by parameter group, then by type (foreach lists hold one type).
std::vector<std::vector<Slot*>> group_slots(std::vector<Slot>& slots, bool decay_groups) {
  std::map<std::pair<int, DType>, std::vector<Slot*>> groups;
  for (Slot& slot : slots) {
    if (!slot.parameter.tensor->grad) continue;
    const int group = decay_groups && !slot.parameter.decays ? 1 : 0;
    groups[{group, slot.parameter.tensor.dtype()}].push_back(&slot);
  }
  std::vector<std::vector<Slot*>> lists;
  for (auto& [key, list] : groups) lists.push_back(std::move(list));
  return lists;
}

Tensor make_state(Eager& e, Recorder& recorder, const Slot& slot, DType dtype) {
  CategoryScope scope(recorder, slot.parameter.is_lm_head ? Category::lm_head_state
                                                          : Category::optimizer_state);
  Tensor state = e.empty_like(slot.parameter.tensor, dtype);
  e.kernel(OpKind::fill, 0, 0, state.bytes());
  return state;
}

// Adam, AdamW and SGD of torch.optim. Source: torch/optim/{adam,adamw,sgd}.py.
class TorchOptimizer : public Optimizer {
 public:
  TorchOptimizer(const OptimizerOptions& options, const std::vector<OptimizedParameter>& parameters)
      : options_(options) {
    for (const OptimizedParameter& parameter : parameters) slots_.push_back({parameter, {}, {}});
  }

  void step(Eager& e, Recorder& recorder) override {
    op::GradMode no_grad(e, false);
    const int groups = options_.decay_groups ? 2 : 1;
    for (int group = 0; group < groups; ++group) {
      make_states(e, recorder, group);
      for (auto& list : group_slots(slots_, options_.decay_groups)) {
        const bool second = options_.decay_groups && !list[0]->parameter.decays;
        if (second == (group == 1)) update(e, list);
      }
    }
  }

 private:
  [[nodiscard]] bool is_adam() const { return options_.kind != OptimizerKind::sgd; }
  [[nodiscard]] int state_count() const {
    if (is_adam()) return options_.amsgrad ? 3 : 2;
    return options_.momentum > 0 ? 1 : 0;
  }

  void make_states(Eager& e, Recorder& recorder, int group) {
    for (Slot& slot : slots_) {
      const bool second = options_.decay_groups && !slot.parameter.decays;
      if (second != (group == 1) || !slot.parameter.tensor->grad || !slot.states.empty()) continue;
      if (options_.implementation == OptimizerImplementation::fused && is_adam()) {
        CategoryScope scope(recorder, Category::optimizer_state);
        slot.step_count = e.empty({}, DType::f32);
      }
      for (int i = 0; i < state_count(); ++i) {
        slot.states.push_back(make_state(e, recorder, slot, slot.parameter.tensor.dtype()));
      }
    }
  }

  void update(Eager& e, std::vector<Slot*>& list) {
    switch (options_.implementation) {
      case OptimizerImplementation::fused:
        for (Slot* slot : list) update_kernel(e, slot->parameter.tensor, 2 + state_count());
        break;
      case OptimizerImplementation::foreach:
        update_foreach(e, list);
        break;
      case OptimizerImplementation::loop:
        update_in_loop(e, list);
        break;
    }
  }

  void update_foreach(Eager& e, std::vector<Slot*>& list) {
    // Adam without decoupled decay, and SGD, add the decay to a copy of the gradients.
    std::vector<Tensor> decayed;
    if (options_.weight_decay && options_.kind != OptimizerKind::adamw) {
      for (Slot* slot : list) decayed.push_back(e.empty_like(slot->parameter.tensor,
                                                             slot->parameter.tensor.dtype()));
    }
    for (Slot* slot : list) update_kernel(e, slot->parameter.tensor, 3);
    if (!is_adam()) return;
    decayed.clear();
    std::vector<Tensor> denominators;
    for (Slot* slot : list) {
      denominators.push_back(e.empty_like(slot->states[1], slot->states[1].dtype()));
    }
    for (Slot* slot : list) update_kernel(e, slot->parameter.tensor, 3);
  }

  // denom = (exp_avg_sq.sqrt() / bias_correction2_sqrt).add_(eps), which lives until the next
  // parameter's replaces it.
  void update_in_loop(Eager& e, std::vector<Slot*>& list) {
    Tensor denominator;
    for (Slot* slot : list) {
      const Tensor& parameter = slot->parameter.tensor;
      Tensor decayed;
      if (options_.weight_decay && options_.kind != OptimizerKind::adamw) {
        decayed = e.empty_like(parameter, parameter.dtype());
      }
      update_kernel(e, parameter, 3);
      if (!is_adam()) continue;
      Tensor root = e.empty_like(slot->states[1], slot->states[1].dtype());
      e.kernel(OpKind::sqrt, 0, root.bytes(), root.bytes());
      denominator = op::div_scalar(e, root, 1);
      root = Tensor();
      update_kernel(e, parameter, 3);
    }
  }

  OptimizerOptions options_;
  std::vector<Slot> slots_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                          const std::vector<OptimizedParameter>& parameters) {
  return std::make_unique<TorchOptimizer>(options, parameters);
}

}  // namespace headroom::step
