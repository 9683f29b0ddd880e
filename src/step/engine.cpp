#include "step/engine.h"

#include <queue>
#include <unordered_map>
#include <vector>

#include "operator/functional.h"

namespace headroom::step {

using op::Grads;
using op::Node;
using op::NodeRef;
using op::Tensor;

namespace {

struct Task {
  int dependencies = 0;
  Grads buffer;
};

// How many gradients each node reachable from the roots will receive.
std::unordered_map<Node*, Task> count_dependencies(std::span<const Tensor> roots) {
  std::unordered_map<Node*, Task> tasks;
  std::vector<Node*> pending;
  for (const Tensor& root : roots) {
    if (tasks.try_emplace(root->grad_fn.get()).second) pending.push_back(root->grad_fn.get());
  }
  while (!pending.empty()) {
    Node* node = pending.back();
    pending.pop_back();
    for (const op::Edge& edge : node->next) {
      if (!edge.node) continue;
      const auto [entry, is_new] = tasks.try_emplace(edge.node.get());
      ++entry->second.dependencies;
      if (is_new) pending.push_back(edge.node.get());
    }
  }
  return tasks;
}

struct RunsLater {
  bool operator()(const NodeRef& a, const NodeRef& b) const { return a->sequence < b->sequence; }
};

// A gradient may be kept as it is only in the layout of its variable.
bool obeys_layout_contract(const Tensor& gradient, const Tensor& variable) {
  if (op::is_non_overlapping_and_dense(variable.sizes(), variable.strides())) {
    for (size_t i = 0; i < variable.sizes().size(); ++i) {
      if (variable.sizes()[i] != 1 && variable.strides()[i] != gradient.strides()[i]) return false;
    }
    return true;
  }
  return gradient.is_contiguous();
}

}  // namespace

void Engine::add_to_buffer(Tensor& slot, Tensor gradient) {
  if (!slot) {
    slot = std::move(gradient);
    return;
  }
  const bool sole_owner = slot->refs == 1 && slot->storage->refs == 1 &&
                          op::is_non_overlapping_and_dense(slot.sizes(), slot.strides());
  if (options_.accumulate_in_place && sole_owner) {
    op::add_inplace(eager_, slot, gradient);
  } else {
    slot = op::add(eager_, slot, gradient);
  }
}

void Engine::accumulate_leaf(Node& node, Grads& grads) {
  Tensor& variable = node.variable;
  Tensor gradient = std::move(grads[0]);
  grads.clear();
  if (!gradient) return;
  if (options_.hands_gradients_out) {
    variable->grad = std::move(gradient);
    return;
  }
  if (variable->grad) {
    op::add_inplace(eager_, variable->grad, gradient);
  } else if (gradient->refs == 1 && obeys_layout_contract(gradient, variable)) {
    variable->grad = eager_.detach(gradient);
  } else {
    variable->grad = eager_.empty_like(variable, gradient.dtype());
    eager_.kernel(op::OpKind::clone, 0, gradient.bytes(), gradient.bytes());
  }
  gradient = Tensor();
  if (options_.hooks.post_accumulate) options_.hooks.post_accumulate(variable);
}

Grads Engine::call(Node& node, Grads& grads) {
  Grads results(node.next.size());
  if (options_.hooks.unpack) options_.hooks.unpack(node);
  eager_.set_module(node.module);
  node.apply(eager_, node, grads, results);
  // What hooks gave back was the call's own; what a node saved itself stays a little longer.
  if (node.hook_owner) node.saved.clear();
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i]) continue;
    if (!node.needs(i)) {
      results[i] = Tensor();
      continue;
    }
    const op::Edge& edge = node.next[i];
    const op::GradientType& expected = edge.node->outputs[edge.input_number];
    if (!(results[i].sizes() == expected.sizes)) {
      results[i] = op::sum_to(eager_, results[i], expected.sizes);
    }
    if (results[i].dtype() != expected.dtype) {
      results[i] = op::to(eager_, results[i], expected.dtype);
    }
  }
  return results;
}

void Engine::run(const Tensor& root, Tensor gradient) {
  Grads gradients;
  gradients.push_back(std::move(gradient));
  run(std::span(&root, 1), std::move(gradients));
}

void Engine::run(std::span<const Tensor> roots, Grads gradients) {
  for (const Tensor& root : roots) {
    op::require(root && root->grad_fn, "backward from a tensor that has no history");
  }
  op::GradMode no_grad(eager_, false);
  const uint32_t module_before = eager_.module();
  const op::ThreadKind thread_before = eager_.thread();
  eager_.set_thread(op::ThreadKind::autograd);
  auto tasks = count_dependencies(roots);
  std::priority_queue<NodeRef, std::vector<NodeRef>, RunsLater> ready;
  for (size_t i = 0; i < roots.size(); ++i) {
    const Tensor& root = roots[i];
    Task& task = tasks[root->grad_fn.get()];
    const bool is_first = task.buffer.empty();
    task.buffer.resize(root->grad_fn->outputs.size());
    // A gradient of another type is cast, and the engine's caller holds the result to the end.
    const bool is_cast = gradients[i].dtype() != root.dtype();
    if (is_cast) gradients[i] = op::to(eager_, gradients[i], root.dtype());
    task.buffer[root->output_number] = gradients[i];
    if (!is_cast) gradients[i] = Tensor();
    if (is_first && task.dependencies == 0) ready.push(root->grad_fn);
  }

  while (!ready.empty()) {
    const NodeRef node = ready.top();
    ready.pop();
    Grads grads = std::move(tasks[node.get()].buffer);
    grads.resize(node->outputs.size());
    if (node->variable) {
      accumulate_leaf(*node, grads);
      continue;
    }
    Grads results = call(*node, grads);
    grads.clear();
    if (!options_.retain_graph) {
      node->saved.clear();
      node->hook_owner.reset();
    }
    for (size_t i = 0; i < results.size(); ++i) {
      const op::Edge& edge = node->next[i];
      if (!edge.node) continue;
      Task& task = tasks[edge.node.get()];
      task.buffer.resize(edge.node->outputs.size());
      if (results[i]) add_to_buffer(task.buffer[edge.input_number], std::move(results[i]));
      if (--task.dependencies == 0) ready.push(edge.node);
    }
  }
  eager_.set_thread(thread_before);
  eager_.set_module(module_before);
}

}  // namespace headroom::step
