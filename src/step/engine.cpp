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

// How many gradients each node reachable from `root` will receive.
std::unordered_map<Node*, Task> count_dependencies(Node* root) {
  std::unordered_map<Node*, Task> tasks;
  std::vector<Node*> pending{root};
  tasks.try_emplace(root);
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
  HEADROOM_CHECK(root->grad_fn, "backward from a tensor that has no history");
  op::GradMode no_grad(eager_, false);
  const uint32_t module_before = eager_.module();
  const op::ThreadKind thread_before = eager_.thread();
  eager_.set_thread(op::ThreadKind::autograd);
  auto tasks = count_dependencies(root->grad_fn.get());
  std::priority_queue<NodeRef, std::vector<NodeRef>, RunsLater> ready;
  Grads& seed = tasks[root->grad_fn.get()].buffer;
  seed.resize(root->grad_fn->outputs.size());
  seed[root->output_number] = std::move(gradient);
  ready.push(root->grad_fn);

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
    node->saved.clear();
    node->hook_owner.reset();
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
