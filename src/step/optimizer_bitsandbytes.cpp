// The optimizers of bitsandbytes: one kernel a parameter without temporaries, so only the states
// matter. AdamW in 8 bits (blockwise) and Lion with a float32 state.
//
// Source: bitsandbytes/optim/optimizer.py (init_state, get_state_buffer). Small parameters keep
// float32 states; so do embeddings where transformers' Trainer asks for it. Paged
// states of large parameters are managed memory, outside of the caching allocator; their scales are
// not.
#include "step/optimizer_slots.h"

namespace headroom::step {

using op::DType;
using op::Eager;
using op::Tensor;

namespace {

constexpr int64_t kQuantizedFrom = 4096;  // min_8bit_size, in elements
constexpr int64_t kPagedFrom = 100'000;   // elements
constexpr int64_t kMapEntries = 256;      // of a quantization map, float32
constexpr op::Version kSmallBlocks{0, 44};

class BitsAndBytes : public Optimizer {
 public:
  BitsAndBytes(const OptimizerOptions& options, const std::vector<OptimizedParameter>& parameters)
      : options_(options), slots_(make_slots(parameters)) {}

  void step(Eager& e, Recorder& recorder) override {
    op::GradMode no_grad(e, false);
    for (const SlotList& group : parameter_groups(slots_, options_.decay_groups)) {
      for (Slot* slot : group) {
        initialize(e, recorder, *slot);
        update_kernel(e, slot->tensor(), traffic(*slot));
      }
    }
  }

 private:
  [[nodiscard]] bool is_paged(const Slot& slot) const {
    return options_.kind == OptimizerKind::paged_adamw_8bit &&
           slot.tensor().elements() >= kPagedFrom;
  }

  // Paged states, two of a byte an element, are where they were used last: on the device, while
  // there is room.
  [[nodiscard]] Traffic traffic(const Slot& slot) const {
    Traffic traffic = fused_traffic(slot);
    if (!is_paged(slot)) return traffic;
    traffic.read_bytes += 2 * slot.tensor().elements();
    traffic.written_bytes += 2 * slot.tensor().elements();
    return traffic;
  }

  void initialize(Eager& e, Recorder& recorder, Slot& slot) {
    if (slot.is_initialized) return;
    slot.is_initialized = true;
    const bool is_lion = options_.kind == OptimizerKind::lion;
    const int moments = is_lion ? 1 : 2;
    const int64_t elements = slot.tensor().elements();
    const bool is_quantized = !is_lion && elements >= kQuantizedFrom &&
                              !(slot.parameter.is_embedding && options_.wide_embedding_states);
    if (is_quantized && maps_.empty()) {
      for (int i = 0; i < moments; ++i) {
        maps_.push_back(make_state(e, recorder, slot, {kMapEntries}, DType::f32));
      }
    }
    for (int i = 0; i < moments && !is_paged(slot); ++i) {
      slot.states.push_back(
          make_state_like(e, recorder, slot, slot.tensor(), is_quantized ? DType::u8 : DType::f32));
    }
    if (!is_quantized) return;
    const int64_t block = options_.bitsandbytes >= kSmallBlocks ? 256 : 2048;
    for (int i = 0; i < moments; ++i) {
      slot.states.push_back(
          make_state(e, recorder, slot, {(elements + block - 1) / block}, DType::f32));
    }
  }

  OptimizerOptions options_;
  std::vector<Slot> slots_;
  std::vector<Tensor> maps_;  // one set for all parameters of a device
};

}  // namespace

std::unique_ptr<Optimizer> make_bitsandbytes(const OptimizerOptions& options,
                                             const std::vector<OptimizedParameter>& list) {
  return std::make_unique<BitsAndBytes>(options, list);
}

}  // namespace headroom::step
