// The autograd engine: runs backward in PyTorch's order and with PyTorch's lifetimes.
//
// Order: among nodes whose outputs' gradients have all arrived, the one created last runs first,
// and AccumulateGrad nodes run as soon as they are ready. Lifetimes, for one node:
//   1. its backward runs; results are reduced and cast to what the receiver expects;
//   2. the gradients that came in are let go, then what the node saved;
//   3. results travel on; a second gradient for the same input is added in place where the engine
//      holds the only reference to the first, else into a new tensor.
// Source: torch/csrc/autograd/{engine,input_buffer}.cpp, functions/accumulate_grad.{h,cpp}.
// Cost: O(n log n) for n nodes.
#pragma once

#include <functional>
#include <span>

#include "operator/eager.h"

namespace headroom::step {

struct EngineHooks {
  // Called before a node runs, a leaf's included (tensor hooks on what it made).
  std::function<void(op::Node& node)> before;
  // Called after a parameter's gradient has been accumulated (register_post_accumulate_grad_hook).
  std::function<void(const op::Tensor& parameter)> post_accumulate;
  // Gives back what saved-tensor hooks took from this node, for the length of one backward call.
  std::function<void(op::Node& node)> unpack;
};

struct EngineOptions {
  // False under fake tensors, which are subclasses that the engine does not add in place.
  bool accumulate_in_place = true;
  // backward(retain_graph=True): nodes keep what they saved.
  bool retain_graph = false;
  // torch.autograd.grad: leaves get their gradients as they come, replacing older ones.
  bool hands_gradients_out = false;
  EngineHooks hooks;
};

// A run for the gradients of some leaves alone (torch.autograd.grad with inputs): nodes that none
// of them is behind do not run, and nodes that run do not compute what goes there.
struct GradientsWanted {
  std::span<op::Node* const> leaves;  // their AccumulateGrad nodes
  // All nodes on the way from the roots to the leaves, both included. REQUIRES: not empty where
  // there are leaves; without either all that is behind the roots runs.
  std::span<op::Node* const> between;
  bool retain_graph = false;
  // Before a node runs, with the gradients of its outputs (Node.register_prehook).
  std::function<void(op::Node& node, const op::Grads& gradients)> before;
};

class Engine {
 public:
  Engine(op::Eager& eager, EngineOptions options) : eager_(eager), options_(std::move(options)) {}

  // Runs backward from `root`, seeded with `gradient`. May be called from within a node's backward
  // (reentrant checkpointing). Saved tensors are released as it goes.
  void run(const op::Tensor& root, op::Tensor gradient);
  // The same from several roots at once.
  void run(std::span<const op::Tensor> roots, op::Grads gradients);
  // From outputs of nodes; gives the gradients of the leaves, which they are not added to.
  op::Grads gradients_of(std::span<const op::Edge> roots, op::Grads gradients,
                         const GradientsWanted& wanted);

 private:
  op::Grads execute(std::span<const op::Edge> roots, op::Grads& gradients,
                    const GradientsWanted* wanted);
  void accumulate_leaf(op::Node& node, op::Grads& grads);
  void add_to_buffer(op::Tensor& slot, op::Tensor gradient);
  void call(op::Node& node, op::Grads& grads, op::Grads& results);

  op::Eager& eager_;
  EngineOptions options_;
  uint64_t runs_ = 0;
};

}  // namespace headroom::step
