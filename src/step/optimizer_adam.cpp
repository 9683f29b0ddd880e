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
      std::vector<Tensor> denominators;
      for (const SlotList& list : by_type(group)) {
        if (options_.implementation == OptimizerImplementation::foreach) {
          update_foreach(e, list, denominators);
        } else {
          for (const Slot* slot : list) update_kernel(e, slot->tensor(), fused_traffic(*slot));
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

  // Decay, then lerp_ of the first moment, mul_ and addcmul_ of the second, whose gradient comes
  // twice, from the cache; with AMSGrad maximum_ of the third.
  [[nodiscard]] Traffic moments_traffic(const Slot& slot) const {
    const int64_t gradient = slot.grad().bytes();
    const int64_t first = slot.states[0].bytes();
    const int64_t second = slot.states[1].bytes();
    Traffic traffic{first + 2 * second + 2 * gradient, first + 2 * second};
    if (options_.amsgrad) {
      traffic.read_bytes += 2 * second;
      traffic.written_bytes += second;
    }
    if (!options_.weight_decay) return traffic;
    const int64_t decayed = copies_gradients() ? gradient : slot.tensor().bytes();
    traffic.read_bytes += slot.tensor().bytes() + (copies_gradients() ? gradient : 0);
    traffic.written_bytes += decayed;
    return traffic;
  }

  // sqrt of the second moment, div_ and add_ of its root, and addcdiv_; less what has kernels of
  // its own.
  static Traffic update_traffic(const Slot& slot, int kernels_apart) {
    const int64_t root = slot.states.back().bytes();
    const int64_t within = (3 - kernels_apart) * root;
    const int64_t parameter = slot.tensor().bytes();
    return {within + parameter + slot.states[0].bytes() + root, within + parameter};
  }

  // `denominators`: a name that keeps one list's until it is given the next one's.
  void update_foreach(Eager& e, const SlotList& list, std::vector<Tensor>& denominators) {
    std::vector<Tensor> decayed;
    for (const Slot* slot : list) {
      if (copies_gradients()) decayed.push_back(e.empty_like(slot->grad(), slot->grad().dtype()));
      update_kernel(e, slot->tensor(), moments_traffic(*slot));
    }
    decayed.clear();
    std::vector<Tensor> roots;
    for (const Slot* slot : list) {
      const Tensor& second = slot->states.back();
      roots.push_back(e.empty_like(second, second.dtype()));
    }
    denominators = std::move(roots);
    for (const Slot* slot : list) update_kernel(e, slot->tensor(), update_traffic(*slot, 0));
  }

  // Names of one round live until the next one takes them.
  void update_in_loop(Eager& e, const SlotList& list) {
    Tensor gradient;
    Tensor denominator;
    for (const Slot* slot : list) {
      gradient = Tensor();
      if (copies_gradients()) gradient = e.empty_like(slot->grad(), slot->grad().dtype());
      update_kernel(e, slot->tensor(), moments_traffic(*slot));
      const Tensor& second = slot->states.back();
      Tensor root = e.empty_like(second, second.dtype());
      e.kernel(op::OpKind::sqrt, 0, root.bytes(), root.bytes());
      Tensor quotient = op::div_scalar(e, root, 1);
      root = Tensor();
      denominator = std::move(quotient);
      constexpr int kRootAndQuotient = 2;
      update_kernel(e, slot->tensor(), update_traffic(*slot, kRootAndQuotient));
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
