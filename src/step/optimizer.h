// Optimizers: what a step of each implementation allocates, in its order. States are made at the
// first step, parameter by parameter; temporaries depend on the implementation (foreach makes a
// whole list at once, a loop one parameter at a time, fused none).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/graph.h"
#include "operator/functional.h"
#include "step/recorder.h"

namespace headroom::step {

enum class OptimizerKind : uint8_t {
  sgd,
  adam,
  adamw,
  adafactor,     // torch.optim's
  hf_adafactor,  // transformers', which its Trainer uses
  bitsandbytes,
};
enum class OptimizerImplementation : uint8_t { foreach, fused, loop };

// What an optimizer of bitsandbytes keeps of a parameter: AdamW a state of each, Lion and RMSprop
// the first, AdEMAMix two in one as the first.
struct BitsAndBytes {
  int first_means = 1;
  int second_means = 1;
  bool has_8_bits = false;  // of large parameters, with scales by blocks
  bool is_paged = false;    // of larger ones, in unified memory
  op::Version version{0, 45};
  bool operator==(const BitsAndBytes&) const = default;
};

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adamw;
  OptimizerImplementation implementation = OptimizerImplementation::foreach;
  double momentum = 0;       // SGD
  bool weight_decay = true;  // a non-zero weight decay
  bool amsgrad = false;
  bool counts_on_host = false;  // a fused kernel's step counts are no tensors (FusedAdam)
  bool states_on_cpu = false;   // and so is the step, of all but small parameters
  // HF's Trainer makes two parameter groups: what decays (matrices), and norms and biases.
  bool decay_groups = true;
  BitsAndBytes bitsandbytes;
  // HF's Trainer has bitsandbytes keep embeddings' states in float32 (Trainer.create_optimizer).
  bool wide_embedding_states = false;
};

// A parameter as the optimizer sees it.
struct OptimizedParameter {
  op::Tensor tensor;
  bool is_lm_head = false;
  bool decays = true;
  bool is_embedding = false;
  bool is_expert = false;
  uint32_t chunk = 0;  // of the model, on a stage that holds several
};

// `tensor` is what the optimizer steps: the parameter, or a rank's part of it.
[[nodiscard]] OptimizedParameter optimized_parameter(op::Tensor tensor,
                                                     const model::Parameter& parameter);

// Of a parameter's states what is in unified memory, outside of the caching allocator.
[[nodiscard]] int64_t paged_bytes(const OptimizerOptions& options, int64_t elements,
                                  bool is_embedding);

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // One step over the parameters that have gradients.
  virtual void step(op::Eager& eager, Recorder& recorder) = 0;
};

[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(
    const OptimizerOptions& options, const std::vector<OptimizedParameter>& parameters);

}  // namespace headroom::step
