// MegatronSetting: a run of Megatron-LM as `fit` looks at it: the whole model, the rank that is
// looked at, and what that rank does in a step. Plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "model/megatron.h"
#include "step/parallel_options.h"

namespace headroom::fit {

struct MegatronSetting {
  model::MegatronStage stage;
  step::MegatronOptions data;
  int64_t micro_batches = 1;          // a step
  bool old_flash_attention = false;   // flash-attn before 2.4.1, which is not deterministic
  int64_t blas_workspace_bytes = -1;  // CUBLAS_WORKSPACE_CONFIG's; -1: torch's default
  std::vector<std::vector<int64_t>> layers_by_stage;  // and chunk; of a row's rank nothing is said
  bool operator==(const MegatronSetting&) const = default;

  // That are computed side by side.
  [[nodiscard]] int64_t batches() const { return data.data_ranks / stage.rank.context; }
  // Whether a router decides how many tokens this rank's experts get: a rank with all experts gets
  // all tokens, and experts that are filled up to their capacity get that.
  [[nodiscard]] bool routes_among_ranks() const {
    return stage.model.experts > 0 && stage.rank.expert > 1 && !stage.model.fills_capacity;
  }

  // REQUIRES: a stage of layers_by_stage.
  void look_at(int64_t index) {
    stage.rank.stage = index;
    stage.rank.chunk_layers = layers_by_stage[static_cast<size_t>(index)];
  }
};

}  // namespace headroom::fit
