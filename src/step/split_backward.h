// A backward pass in two parts, as torch.distributed.pipelining splits it: first the gradient that
// the stage before waits for, later those of the weights.
//
// The first part runs what is between the outputs and the stage's input and keeps the graph. Where
// a parameter's gradient would leave that way (at a linear layer, say) the gradients that arrive
// there are held. The second part starts from those, a group of parameters after another.
// Invariants:
//   1. Every parameter that a gradient comes to is in one group; parameters of one node (weight and
//      bias) are in the same.
//   2. What nodes saved stays until the second part: a node's own goes as it runs, all others' with
//      the graph, at its end.
//   3. Of the graph behind the last such place (the loss) nothing is left after the first part.
// Source: torch/distributed/pipelining/_backward.py (2.13): stage_backward_input,
// stage_backward_weight. Cost: O(n log n) for n nodes, in each part.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "step/engine.h"

namespace headroom::step {

// Parameters whose gradients start at the same nodes, and what arrived there.
struct WeightGroup {
  std::vector<op::NodeRef> parameters;  // their AccumulateGrad nodes
  std::vector<op::NodeRef> starts;
  std::vector<op::Grads> arrived;    // by start, of each output
  std::vector<op::NodeRef> between;  // all nodes from the starts to the parameters, both included
};

// The gradient of `input`, a leaf, which it holds afterwards; what is left to do is answered.
// `root` loses its history. `parameters` in the module's order; frozen ones are passed over.
[[nodiscard]] std::vector<WeightGroup> backward_to_input(Engine& engine, op::Eager& eager,
                                                         const op::Tensor& root, op::Tensor seed,
                                                         const op::Tensor& input,
                                                         std::span<const op::Tensor> parameters);

// Adds up the gradients of the parameters; `accumulated` is called behind each.
void backward_to_weights(Engine& engine, op::Eager& eager, std::vector<WeightGroup> groups,
                         const std::function<void(const op::Tensor& parameter)>& accumulated);

}  // namespace headroom::step
