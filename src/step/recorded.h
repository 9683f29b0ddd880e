// Replays a recorded operator (model/recording.h) on an Eager: the same blocks, views, saved
// tensors and gradients as in the trace, and the workspaces of matrix products, which no trace
// shows.
#pragma once

#include <span>
#include <vector>

#include "model/graph.h"
#include "operator/eager.h"

namespace headroom::step {

// REQUIRES: operation.recording. `inputs` may hold undefined tensors.
void run_recorded(op::Eager& eager, const model::Operation& operation,
                  std::span<const op::Tensor> inputs, std::vector<op::Tensor>& outputs);

}  // namespace headroom::step
