// Adafactor, of torch.optim and of transformers: a matrix's second moment is kept as a row and a
// column. Sources: torch/optim/_adafactor.py (2.5 and later), transformers/optimization.py.
#include "step/optimizer_slots.h"

namespace headroom::step {

using op::Dims;
using op::DType;
using op::Eager;
using op::Tensor;

namespace {

constexpr int kLastDimension[] = {-1};
constexpr int kRowDimension[] = {-2};

bool is_factored(const Slot& slot) { return slot.tensor().rank() >= 2; }

// A norm over everything, read by the host and dropped.
void read_norm(Eager& e, const Tensor& tensor) { op::sum(e, tensor, {}, false); }

// The estimate times the gradient, over its norm, times the rate; and what that adds to the
// parameter.
Traffic scaled_traffic(const Slot& slot) {
  const int64_t gradient = slot.grad().bytes();
  const int64_t parameter = slot.tensor().bytes();
  return {5 * gradient + parameter, 3 * gradient + parameter};
}

class TorchAdafactor : public Optimizer {
 public:
  TorchAdafactor(const OptimizerOptions& options, const std::vector<OptimizedParameter>& parameters)
      : options_(options), slots_(make_slots(parameters)) {}

  void step(Eager& e, Recorder& recorder) override {
    op::GradMode no_grad(e, false);
    for (const SlotList& group : parameter_groups(slots_, options_.decay_groups)) {
      for (Slot* slot : group) initialize(e, recorder, *slot);
      if (options_.implementation != OptimizerImplementation::foreach) {
        update_in_loop(e, group);
        continue;
      }
      std::vector<Tensor> updates;  // of one list, until the next list's are made
      for (const SlotList& list : by_type(group)) {
        SlotList parts[2];  // matrices come first
        for (Slot* slot : list) parts[is_factored(*slot) ? 0 : 1].push_back(slot);
        if (!parts[0].empty()) update_matrices(e, parts[0], updates);
        if (!parts[1].empty()) update_vectors(e, parts[1], updates);
      }
    }
  }

 private:
  void initialize(Eager& e, Recorder& recorder, Slot& slot) {
    if (slot.is_initialized) return;
    slot.is_initialized = true;
    const DType type = slot.grad().dtype();
    if (!is_factored(slot)) {
      slot.states.push_back(make_state_like(e, recorder, slot, slot.grad(), type));
      return;
    }
    Dims row = slot.grad().sizes();
    Dims column = row;
    row.back() = 1;
    column[column.size() - 2] = 1;
    slot.states.push_back(make_state(e, recorder, slot, row, type));
    slot.states.push_back(make_state(e, recorder, slot, column, type));
  }

  static Tensor estimate(Eager& e, const Slot& slot) {
    return op::matmul(e, slot.states[0], slot.states[1]);
  }

  static void update_matrices(Eager& e, const SlotList& list, std::vector<Tensor>& updates) {
    for (const Slot* slot : list) read_norm(e, slot->tensor());
    for (const auto& dims :
         {std::span<const int>(kLastDimension), std::span<const int>(kRowDimension)}) {
      std::vector<Tensor> means;
      for (const Slot* slot : list) means.push_back(op::sum(e, slot->grad(), dims, true));
    }
    std::vector<Tensor> estimates;
    for (const Slot* slot : list) estimates.push_back(estimate(e, *slot));
    {
      std::vector<Tensor> row_means;
      for (const Slot* slot : list) {
        row_means.push_back(op::mean(e, slot->states[0], kRowDimension, true));
      }
    }
    updates = std::move(estimates);
    finish(e, list, updates);
  }

  static void update_vectors(Eager& e, const SlotList& list, std::vector<Tensor>& updates) {
    for (const Slot* slot : list) read_norm(e, slot->tensor());
    {
      std::vector<Tensor> squares;
      for (const Slot* slot : list)
        squares.push_back(e.empty_like(slot->grad(), slot->grad().dtype()));
    }
    std::vector<Tensor> estimates;
    for (const Slot* slot : list) estimates.push_back(op::clone(e, slot->states[0]));
    updates = std::move(estimates);
    finish(e, list, updates);
  }

  static void finish(Eager& e, const SlotList& list, const std::vector<Tensor>& updates) {
    for (const Tensor& update : updates) read_norm(e, update);
    for (const Slot* slot : list) update_kernel(e, slot->tensor(), scaled_traffic(*slot));
  }

  // Names of one round live until the next one takes them; `update` and the estimate are one
  // tensor.
  static void update_in_loop(Eager& e, const SlotList& list) {
    Tensor row_mean;
    Tensor column_mean;
    Tensor squared;
    Tensor update;
    for (const Slot* slot : list) {
      read_norm(e, slot->tensor());
      if (is_factored(*slot)) {
        row_mean = op::sum(e, slot->grad(), kLastDimension, true);
        column_mean = op::sum(e, slot->grad(), kRowDimension, true);
        Tensor made = estimate(e, *slot);
        op::mean(e, slot->states[0], kRowDimension, true);
        update = std::move(made);
      } else {
        squared = op::mul(e, slot->grad(), slot->grad());
        update = op::clone(e, slot->states[0]);
      }
      read_norm(e, update);
      update_kernel(e, slot->tensor(), scaled_traffic(*slot));
    }
  }

  OptimizerOptions options_;
  std::vector<Slot> slots_;
};

// transformers' own: one parameter at a time, in float32.
class HuggingFaceAdafactor : public Optimizer {
 public:
  HuggingFaceAdafactor(const OptimizerOptions& options,
                       const std::vector<OptimizedParameter>& parameters)
      : options_(options), slots_(make_slots(parameters)) {}

  void step(Eager& e, Recorder& recorder) override {
    op::GradMode no_grad(e, false);
    Round round;
    for (const SlotList& group : parameter_groups(slots_, options_.decay_groups)) {
      for (Slot* slot : group) update(e, recorder, *slot, round);
    }
  }

 private:
  // The Python names that live from one parameter to the next.
  struct Round {
    Tensor gradient;
    Tensor weights;
    Tensor update;
  };

  static void initialize(Eager& e, Recorder& recorder, Slot& slot, const Tensor& gradient) {
    if (slot.is_initialized) return;
    slot.is_initialized = true;
    if (!is_factored(slot)) {
      slot.states.push_back(make_state_like(e, recorder, slot, gradient, gradient.dtype()));
      return;
    }
    Dims row = gradient.sizes();
    row.pop_back();
    Dims column = row;
    column.back() = gradient.size(-1);
    slot.states.push_back(make_state(e, recorder, slot, row, gradient.dtype()));
    slot.states.push_back(make_state(e, recorder, slot, column, gradient.dtype()));
  }

  static void update(Eager& e, Recorder& recorder, Slot& slot, Round& round) {
    const auto wide = [&](const Tensor& tensor) {
      return op::is_half(tensor.dtype()) ? op::to(e, tensor, DType::f32) : tensor;
    };
    round.gradient = Tensor();
    round.gradient = wide(slot.grad());
    initialize(e, recorder, slot, round.gradient);
    round.weights = Tensor();
    round.weights = wide(slot.tensor());
    read_norm(e, round.weights);
    {
      const Tensor squares = op::pow(e, round.gradient, 2);
      round.update = op::add_scalar(e, squares, 1e-30);
    }
    if (is_factored(slot)) {
      op::mean(e, round.update, kLastDimension, false);
      op::mean(e, round.update, kRowDimension, false);
      const Tensor row = op::rsqrt(
          e, op::div(e, slot.states[0], op::mean(e, slot.states[0], kLastDimension, true)));
      const Tensor column = op::rsqrt(e, op::unsqueeze(e, slot.states[1], -2));
      round.update = op::mul(e, op::unsqueeze(e, row, -1), column);
    } else {
      round.update = op::rsqrt(e, slot.states[0]);
    }
    read_norm(e, round.update);
    op::neg(e, round.update);
    update_kernel(e, slot.tensor(), scaled_traffic(slot));
  }

  OptimizerOptions options_;
  std::vector<Slot> slots_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(const OptimizerOptions& options,
                                          const std::vector<OptimizedParameter>& list) {
  if (options.kind == OptimizerKind::hf_adafactor) {
    return std::make_unique<HuggingFaceAdafactor>(options, list);
  }
  return std::make_unique<TorchAdafactor>(options, list);
}

}  // namespace headroom::step
