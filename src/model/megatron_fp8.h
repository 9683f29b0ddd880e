// What Transformer Engine keeps of a module whose products are in FP8, from its first run on: its
// weights in FP8, quantized anew with each step's first micro-batch, and what delayed scales are
// made of. Internal to model.
//
// Megatron-LM tells each module which micro-batch is the first (is_first_microbatch), unless its
// cache is switched off, so that all micro-batches share one copy. Weights without FP8, norms,
// embeddings, the head and the router, have none.
//
// Source: transformer_engine/pytorch/module/base.py (quantize_weight, init_fp8_metadata),
// quantization.py (DelayedScalingRecipeState), versions 2.9 and of August 2026; megatron/core/
// extensions/transformer_engine.py, at d98e8a64 (August 2026).
#pragma once

#include <string>

#include "base/result.h"
#include "model/builder.h"
#include "model/megatron.h"

namespace headroom::model {

// Of a module with so many matrices of one shape; nothing where the model is not in FP8.
void keep_in_fp8(GraphBuilder& g, const MegatronModel& m, const std::string& module,
                 const Dims& weight, int64_t matrices = 1);

// The Error names the tensor that products in FP8 do not take, its dimension and what to change.
// `graph` is of the stage, with what keep_in_fp8() declared.
[[nodiscard]] Result<void> check_fp8_sizes(const MegatronStage& stage, const Graph& graph);

}  // namespace headroom::model
