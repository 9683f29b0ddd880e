// Autograd's graph: one Node for each differentiable operator that ran, with what it saved.
//
// Mirrors torch::autograd::Node: edges to the producers of its inputs, the saved tensors, and the
// backward function. A node's saved tensors go when its backward has run (keep_graph is false).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "operator/backward_function.h"
#include "operator/tensor.h"

namespace headroom::op {

class Eager;

// Gradients by position; an undefined one is a null Tensor.
using Grads = std::vector<Tensor>;

struct Edge {
  NodeRef node;  // null: no gradient is wanted there
  uint32_t input_number = 0;
};

// Shape and type of an output, to which its gradient is reduced and cast (validate_outputs).
struct GradientType {
  Dims sizes;
  DType dtype = DType::f32;
};

// A slot of `saved` that a hook took over (SavedTensorHooks), and the hook's name for it.
struct HookedSlot {
  uint32_t slot = 0;
  uint32_t holder = 0;
};

// What one run of the engine knows of a node; the engine's own (step/engine.h).
struct BackwardTask {
  uint64_t run = 0;      // of which run; 0: of none
  int dependencies = 0;  // gradients still to come
  // False: the run is after gradients that this node is not on the way to. True outside of runs.
  bool is_wanted = true;
  Grads gradients;  // those that came
};

struct Node {
  using Apply = BackwardFunction<Eager&, Node&, Grads& /*grads*/, Grads& /*results*/>;

  uint32_t refs = 0;
  const char* name = "";
  uint64_t sequence = 0;  // later nodes run first in backward; UINT64_MAX for AccumulateGrad
  uint32_t module = 0;    // where in the model this ran, for labels
  std::vector<Edge> next;
  std::vector<GradientType> outputs;
  std::vector<Tensor> saved;
  std::vector<HookedSlot> hooked;
  std::shared_ptr<void> hook_owner;  // what the hook needs to give the tensors back
  Apply apply;
  Tensor variable;  // AccumulateGrad only: the leaf
  BackwardTask task;

  // Whether the gradient of input i is wanted.
  [[nodiscard]] bool needs(size_t i) const {
    return i < next.size() && next[i].node && next[i].node->task.is_wanted;
  }
  // Appends to `saved`; an unwanted tensor leaves a null in its place.
  void save(const Tensor& tensor) { saved.push_back(tensor); }
  void save_if(bool wanted, const Tensor& tensor) { saved.push_back(wanted ? tensor : Tensor()); }
};

// An empty node, for a NodeRef to hold.
[[nodiscard]] Node* new_node();

}  // namespace headroom::op
