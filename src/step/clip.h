// Clipping gradients by their global norm (torch.nn.utils.clip_grad_norm_, foreach): one norm a
// tensor, stacked, and the gradients scaled in place.
#pragma once

#include <vector>

#include "operator/functional.h"
#include "step/optimizer.h"

namespace headroom::step {

void clip_gradients(op::Eager& eager, const std::vector<OptimizedParameter>& parameters);

}  // namespace headroom::step
