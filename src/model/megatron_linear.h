// The two ways in which tensor parallel ranks share a matrix, as Transformer Engine's modules and
// as Megatron-LM's own (--transformer-impl local) run them. Internal to model.
//
// Transformer Engine's norm is a part of the product behind it; Megatron-LM's own is Apex's
// FusedLayerNorm, whose output the product keeps.
//
// Source: megatron/core/tensor_parallel/{layers,mappings}.py, models/gpt/gpt_layer_specs.py, at
// d98e8a64 (August 2026).
#pragma once

#include "model/megatron_parts.h"

namespace headroom::model {

// ColumnParallelLinear behind a norm: x [s, b, h]; `gathered` is the engine's buffer of whole
// sequences. `bias` may be empty.
Var normed_columns(GraphBuilder& g, const MegatronStage& stage, const Var& x,
                   const MegatronNorm& norm, const Var& weight, const Var& bias,
                   const Var& gathered);

// ColumnParallelLinear of what is normed already, or needs no norm. `is_kept_by_others`: what comes
// in is kept for backward in any case, which matters in FP8 (in_fp8).
Var plain_columns(GraphBuilder& g, const MegatronStage& stage, const Var& x, const Var& weight,
                  const Var& bias, const Var& gathered, bool is_kept_by_others = false);

// RowParallelLinear, whose parts are summed, each rank getting its rows or all of them. Without its
// bias, which is added with the residual.
Var summed_rows(GraphBuilder& g, const MegatronStage& stage, Var x, const Var& weight,
                bool is_kept_by_others = false);

}  // namespace headroom::model
