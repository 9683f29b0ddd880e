// torch.optim.SGD. Source: torch/optim/sgd.py (2.x). A momentum buffer is a copy of the first
// gradient, so it is made inside the first update.
#include "step/optimizer_slots.h"

namespace headroom::step {

using op::Eager;
using op::Tensor;

namespace {

class Sgd : public Optimizer {
 public:
  Sgd(const OptimizerOptions& options, const std::vector<OptimizedParameter>& parameters)
      : options_(options), slots_(make_slots(parameters)) {}

  void step(Eager& e, Recorder& recorder) override {
    op::GradMode no_grad(e, false);
    for (const SlotList& group : parameter_groups(slots_, options_.decay_groups)) {
      if (options_.implementation == OptimizerImplementation::loop) {
        update_in_loop(e, recorder, group);
        continue;
      }
      for (const SlotList& list : by_type(group)) update_list(e, recorder, list);
    }
  }

 private:
  void remember(Eager& e, Recorder& recorder, Slot& slot) {
    if (options_.momentum <= 0 || slot.is_initialized) return;
    slot.is_initialized = true;
    slot.states.push_back(make_state_like(e, recorder, slot, slot.grad(), slot.grad().dtype()));
  }

  // Decay makes another gradient, momentum is mul_ and add_ of its buffer, then the parameter's
  // add_.
  [[nodiscard]] Traffic update_traffic(const Slot& slot) const {
    const int64_t parameter = slot.tensor().bytes();
    const int64_t gradient = slot.grad().bytes();
    Traffic traffic{parameter + gradient, parameter};
    if (options_.weight_decay) {
      traffic.read_bytes += parameter + gradient;
      traffic.written_bytes += gradient;
    }
    if (options_.momentum > 0) {
      traffic.read_bytes += 3 * gradient;
      traffic.written_bytes += 2 * gradient;
    }
    return traffic;
  }

  void update_list(Eager& e, Recorder& recorder, const SlotList& list) {
    const bool is_fused = options_.implementation == OptimizerImplementation::fused;
    std::vector<Tensor> decayed;
    for (const Slot* slot : list) {
      if (options_.weight_decay && !is_fused) {
        decayed.push_back(e.empty_like(slot->grad(), slot->grad().dtype()));
      }
      update_kernel(e, slot->tensor(), is_fused ? fused_traffic(*slot) : update_traffic(*slot));
    }
    for (Slot* slot : list) remember(e, recorder, *slot);
  }

  void update_in_loop(Eager& e, Recorder& recorder, const SlotList& list) {
    Tensor gradient;
    for (Slot* slot : list) {
      gradient = Tensor();
      if (options_.weight_decay) gradient = e.empty_like(slot->grad(), slot->grad().dtype());
      update_kernel(e, slot->tensor(), update_traffic(*slot));
      remember(e, recorder, *slot);
    }
  }

  OptimizerOptions options_;
  std::vector<Slot> slots_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const OptimizerOptions& options,
                                    const std::vector<OptimizedParameter>& list) {
  return std::make_unique<Sgd>(options, list);
}

}  // namespace headroom::step
