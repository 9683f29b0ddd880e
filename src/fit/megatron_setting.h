// MegatronSetting: a run of Megatron-LM as `fit` looks at it: the whole model, the rank that is
// looked at, and what that rank does in a step. Plain values.
#pragma once

#include <cstdint>

#include "model/megatron.h"
#include "step/parallel_options.h"

namespace headroom::fit {

struct MegatronSetting {
  model::MegatronStage stage;
  step::MegatronOptions data;
  int64_t micro_batches = 1;          // a step
  bool old_flash_attention = false;   // flash-attn before 2.4.1, which is not deterministic
  int64_t blas_workspace_bytes = -1;  // CUBLAS_WORKSPACE_CONFIG's; -1: torch's default
  bool operator==(const MegatronSetting&) const = default;
};

}  // namespace headroom::fit
