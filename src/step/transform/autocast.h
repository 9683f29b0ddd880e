// Autocast: what torch.autocast does to a forward pass, written out as casts.
//
// Products run in the lower precision; powers, normalizations and losses run in float32; all else
// runs in the type it finds. The cast of a trainable float32 parameter is kept until the context
// exits, and within one recomputed layer (torch.utils.checkpoint enters a context of its own
// there); every other cast lives as long as its operator, or as long as backward needs it.
//
// Apply it last, after LoRA or quantization: their operators are cast too. Cost: linear.
//
// Source: ATen/autocast_mode.{h,cpp} (PyTorch 2.x); torch/utils/checkpoint.py; for outputs,
// accelerate's ConvertOutputsToFp32.
#pragma once

#include "model/graph.h"

namespace headroom::step {

struct AutocastOptions {
  model::DType dtype = model::DType::bf16;
  // accelerate (and so HF's Trainer) hands a model's half-precision outputs on as float32 copies.
  bool outputs_to_float32 = false;
};

[[nodiscard]] model::Graph apply_autocast(const model::Graph& graph,
                                          const AutocastOptions& options);

}  // namespace headroom::step
