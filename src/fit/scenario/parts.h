// The parts of making a Scenario that translate one group of settings each.
#pragma once

#include "fit/scenario/scenario.h"

namespace headroom::fit {

// Policy, and which of PyTorch's two kinds: transformers before 5.0 checkpoints reentrantly.
void set_checkpointing(Scenario& scenario);
// Kind and implementation; torch's own choice on CUDA is foreach.
void set_optimizer(Scenario& scenario);
// How the step is divided among devices.
void set_division(Scenario& scenario);
// PyTorch's caching allocator by its settings, or a plan.
Result<void> set_allocator(Scenario& scenario);
// The model's own, or what the chosen kernels bring.
Result<void> set_loss(Scenario& scenario);
// The kernel that `--attention sdpa-...` allows alone; nothing for the other words.
[[nodiscard]] std::optional<op::AttentionBackend> named_kernel(Attention attention);
// Whether the device has units for that type; one whose generation nobody knows is taken to.
[[nodiscard]] bool has_bf16(const device::Device& device);
// A word of warning where the device would run that type without units for it.
void warn_of_bf16(Scenario& scenario);
void warn_of_fp16_gradients(Scenario& scenario);
void warn_of_compiled_masks(Scenario& scenario);
// An Error that names the first setting which the step model cannot follow.
Result<void> check_supported(const Scenario& scenario);

}  // namespace headroom::fit
