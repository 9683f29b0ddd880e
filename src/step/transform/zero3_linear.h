// Linear modules as they are under DeepSpeed's ZeRO, stage 3: torch.nn.functional.linear is
// replaced by a function of its own, whose saved weight is the parameter and not a view of it, so
// that the block goes when the parameter is let go. It saves its input where the weight is frozen,
// too.
//
// Source: deepspeed/runtime/zero/linear.py and partition_parameters.py (memory_efficient_linear,
// which is on by default), version 0.19.8. Apply it last. Cost: linear.
#pragma once

#include "model/graph.h"

namespace headroom::step {

[[nodiscard]] model::Graph apply_zero3_linear(model::Graph graph);

}  // namespace headroom::step
