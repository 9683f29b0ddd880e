// The optimizers of bitsandbytes: one kernel a parameter without temporaries, so only the states
// matter: how many, in float32 or in 8 bits (blockwise), paged or not.
//
// Sources: bitsandbytes/optim/optimizer.py (init_state, get_state_buffer), ademamix.py (0.50).
// Small parameters keep float32 states; so do embeddings where transformers' Trainer asks for it.
// Paged states of large parameters are managed memory, outside of the caching allocator; their
// scales are not.
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

bool is_paged(const OptimizerOptions& options, int64_t elements) {
  return options.bitsandbytes.is_paged && elements >= kPagedFrom;
}

bool is_quantized(const OptimizerOptions& options, int64_t elements, bool is_embedding) {
  const bool is_wide = is_embedding && options.wide_embedding_states;
  return options.bitsandbytes.has_8_bits && elements >= kQuantizedFrom && !is_wide;
}

class BitsAndBytesOptimizer : public Optimizer {
 public:
  BitsAndBytesOptimizer(const OptimizerOptions& options,
                        const std::vector<OptimizedParameter>& parameters)
      : options_(options), slots_(make_slots(parameters)) {
    const BitsAndBytes& kept = options.bitsandbytes;
    means_.push_back(kept.first_means);
    if (kept.second_means > 0) means_.push_back(kept.second_means);
  }

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
  // Paged states are where they were used last: on the device, while there is room.
  [[nodiscard]] Traffic traffic(const Slot& slot) const {
    Traffic traffic = fused_traffic(slot);
    const int64_t paged =
        paged_bytes(options_, slot.tensor().elements(), slot.parameter.is_embedding);
    traffic.read_bytes += paged;
    traffic.written_bytes += paged;
    return traffic;
  }

  void initialize(Eager& e, Recorder& recorder, Slot& slot) {
    if (slot.is_initialized) return;
    slot.is_initialized = true;
    const int64_t elements = slot.tensor().elements();
    const bool has_8_bits = is_quantized(options_, elements, slot.parameter.is_embedding);
    if (has_8_bits && maps_.empty()) {
      for (size_t i = 0; i < means_.size(); ++i) {
        maps_.push_back(make_state(e, recorder, slot, {kMapEntries}, DType::f32));
      }
    }
    // AdEMAMix makes its scales first.
    const bool begins_with_scales = options_.bitsandbytes.first_means > 1;
    if (has_8_bits && begins_with_scales) make_scales(e, recorder, slot);
    if (!is_paged(options_, elements)) {
      make_means(e, recorder, slot, has_8_bits ? DType::u8 : DType::f32);
    }
    if (has_8_bits && !begins_with_scales) make_scales(e, recorder, slot);
  }

  void make_means(Eager& e, Recorder& recorder, Slot& slot, DType type) const {
    for (const int count : means_) {
      if (count == 1) {
        slot.states.push_back(make_state_like(e, recorder, slot, slot.tensor(), type));
        continue;
      }
      slot.states.push_back(make_state(e, recorder, slot, {count, slot.tensor().elements()}, type));
    }
  }

  void make_scales(Eager& e, Recorder& recorder, Slot& slot) const {
    const int64_t block = options_.bitsandbytes.version >= kSmallBlocks ? 256 : 2048;
    const int64_t blocks = (slot.tensor().elements() + block - 1) / block;
    for (const int count : means_) {
      slot.states.push_back(make_state(e, recorder, slot, {count, blocks}, DType::f32));
    }
  }

  OptimizerOptions options_;
  std::vector<int> means_;  // in each state
  std::vector<Slot> slots_;
  std::vector<Tensor> maps_;  // one set for all parameters of a device
};

}  // namespace

int64_t paged_bytes(const OptimizerOptions& options, int64_t elements, bool is_embedding) {
  if (!is_paged(options, elements)) return 0;
  const BitsAndBytes& kept = options.bitsandbytes;
  const DType type = is_quantized(options, elements, is_embedding) ? DType::u8 : DType::f32;
  return elements * (kept.first_means + kept.second_means) * op::element_size(type);
}

std::unique_ptr<Optimizer> make_bitsandbytes(const OptimizerOptions& options,
                                             const std::vector<OptimizedParameter>& list) {
  return std::make_unique<BitsAndBytesOptimizer>(options, list);
}

}  // namespace headroom::step
