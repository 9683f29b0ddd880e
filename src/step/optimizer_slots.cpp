#include "step/optimizer_slots.h"

#include "step/type_groups.h"

namespace headroom::step {

using memory::Category;
using op::Tensor;

std::vector<Slot> make_slots(const std::vector<OptimizedParameter>& parameters) {
  std::vector<Slot> slots;
  slots.reserve(parameters.size());
  for (const OptimizedParameter& parameter : parameters) slots.push_back({parameter, {}, false});
  return slots;
}

std::vector<SlotList> parameter_groups(std::vector<Slot>& slots, bool decay_groups) {
  std::vector<SlotList> groups(decay_groups ? 2 : 1);
  for (Slot& slot : slots) {
    if (!slot.grad()) continue;
    groups[decay_groups && !slot.parameter.decays ? 1 : 0].push_back(&slot);
  }
  return groups;
}

std::vector<SlotList> by_type(const SlotList& group) {
  return grouped_by_type(group, [](const Slot* slot) { return slot->tensor().dtype(); });
}

namespace {

Tensor in_category(op::Eager& e, Recorder& recorder, const Slot& slot, auto make) {
  CategoryScope scope(
      recorder, slot.parameter.is_lm_head ? Category::lm_head_state : Category::optimizer_state);
  Tensor state = make();
  e.kernel(op::OpKind::fill, 0, 0, state.bytes());
  return state;
}

}  // namespace

Tensor make_state(op::Eager& e, Recorder& recorder, const Slot& slot, const op::Dims& sizes,
                  op::DType dtype) {
  return in_category(e, recorder, slot, [&] { return e.empty(sizes, dtype); });
}

Tensor make_state_like(op::Eager& e, Recorder& recorder, const Slot& slot, const Tensor& like,
                       op::DType dtype) {
  return in_category(e, recorder, slot, [&] { return e.empty_like(like, dtype); });
}

void update_kernel(op::Eager& e, const Tensor& parameter, const Traffic& traffic) {
  e.kernel(op::OpKind::optimizer_update, 10.0 * static_cast<double>(parameter.elements()),
           traffic.read_bytes, traffic.written_bytes);
}

Traffic fused_traffic(const Slot& slot) {
  int64_t written = slot.tensor().bytes();
  for (const Tensor& state : slot.states) written += state.bytes();
  return {written + slot.grad().bytes(), written};
}

}  // namespace headroom::step
