// The part of resolve() for a run of Megatron-LM, whose model is the setting's own.
#pragma once

#include "fit/scenario/scenario.h"

namespace headroom::fit {

// The step's options; batch, sequence and accumulation are the question's. The device and the
// versions are there already. The Error is about products in FP8 on a device that has none.
// REQUIRES: scenario.question.megatron.
Result<void> set_megatron(Scenario& scenario);

// The stage's place among the others.
[[nodiscard]] step::Pipeline pipeline_of(const model::MegatronRank& rank);

// Transformer Engine's workspace for products: 32 MiB and 1 KiB from Hopper on, 4 MiB before
// (get_cublas_workspace_size_bytes, transformer_engine/pytorch/module/base.py).
[[nodiscard]] int64_t te_workspace_bytes(int compute_capability);

}  // namespace headroom::fit
