#include "step/engine.h"

#include <algorithm>
#include <queue>
#include <utility>
#include <vector>

#include "operator/functional.h"

namespace headroom::step {

using op::DType;
using op::Grads;
using op::Node;
using op::NodeRef;
using op::Tensor;

namespace {

// The tasks of one run, one in each node that is reachable from its roots. A run inside a run
// (reentrant checkpointing) may meet a node of the outer one, such as the accumulator of a weight
// that both use: its task is put aside, and back at the end.
class Tasks {
 public:
  // All behind the roots; or what is `between`, and what leaves it is not wanted.
  Tasks(std::span<const op::Edge> roots, uint64_t run, std::span<Node* const> between) : run_(run) {
    if (between.empty()) {
      take_all_behind(roots);
    } else {
      stay_among(between);
    }
  }
  ~Tasks() {
    for (const NodeRef& node : unwanted_) node->task.is_wanted = true;
    for (auto& [node, task] : aside_) node->task = std::move(task);
  }
  Tasks(const Tasks&) = delete;
  Tasks& operator=(const Tasks&) = delete;

 private:
  void adopt(Node& node) {
    // A task that is done has neither; one of an outer run may wait or be ready, with gradients.
    if (node.task.dependencies > 0 || !node.task.gradients.empty()) {
      aside_.emplace_back(NodeRef(&node), std::move(node.task));
    }
    node.task.run = run_;
    node.task.dependencies = 0;
    node.task.gradients.clear();
  }

  void take_all_behind(std::span<const op::Edge> roots) {
    std::vector<Node*> pending;
    for (const op::Edge& root : roots) {
      Node* node = root.node.get();
      if (node->task.run == run_) continue;
      adopt(*node);
      pending.push_back(node);
    }
    while (!pending.empty()) {
      Node* node = pending.back();
      pending.pop_back();
      for (const op::Edge& edge : node->next) {
        if (!edge.node) continue;
        if (edge.node->task.run != run_) {
          adopt(*edge.node);
          pending.push_back(edge.node.get());
        }
        ++edge.node->task.dependencies;
      }
    }
  }

  void stay_among(std::span<Node* const> nodes) {
    for (Node* node : nodes) adopt(*node);
    for (Node* node : nodes) {
      for (const op::Edge& edge : node->next) {
        if (!edge.node) continue;
        op::BackwardTask& task = edge.node->task;
        if (task.run == run_) {
          ++task.dependencies;
        } else if (task.is_wanted) {
          task.is_wanted = false;
          unwanted_.push_back(edge.node);
        }
      }
    }
  }

  uint64_t run_;
  std::vector<NodeRef> unwanted_;
  std::vector<std::pair<NodeRef, op::BackwardTask>> aside_;
};

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
  // AccumulateGrad holds what it was given until the hook has returned.
  if (options_.hooks.post_accumulate) options_.hooks.post_accumulate(variable);
}

void Engine::call(Node& node, Grads& grads, Grads& results) {
  results.clear();
  results.resize(node.next.size());
  if (options_.hooks.unpack) options_.hooks.unpack(node);
  eager_.set_module(node.module);
  // A function that none of its outputs' gradients reached passes on that there is none.
  const bool is_reached = std::ranges::any_of(grads, [](const Tensor& each) { return !!each; });
  if (is_reached) node.apply(eager_, node, grads, results);
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
}

void Engine::run(const Tensor& root, Tensor gradient) {
  Grads gradients;
  gradients.push_back(std::move(gradient));
  run(std::span(&root, 1), std::move(gradients));
}

void Engine::run(std::span<const Tensor> roots, Grads gradients) {
  std::vector<op::Edge> edges;
  for (const Tensor& root : roots) {
    op::require(root && root->requires_grad, "backward from a tensor that has no history");
    edges.push_back(eager_.gradient_edge(root));
  }
  execute(edges, gradients, nullptr);
}

Grads Engine::gradients_of(std::span<const op::Edge> roots, Grads gradients,
                           const GradientsWanted& wanted) {
  return execute(roots, gradients, &wanted);
}

Grads Engine::execute(std::span<const op::Edge> roots, Grads& gradients,
                      const GradientsWanted* wanted) {
  op::GradMode no_grad(eager_, false);
  const uint32_t module_before = eager_.module();
  const op::ThreadKind thread_before = eager_.thread();
  eager_.set_thread(op::ThreadKind::autograd);
  const auto leaves = wanted != nullptr ? wanted->leaves : std::span<Node* const>();
  const bool retains = wanted != nullptr ? wanted->retain_graph : options_.retain_graph;
  const auto between = wanted != nullptr ? wanted->between : std::span<Node* const>();
  const Tasks tasks(roots, ++runs_, between);
  std::priority_queue<NodeRef, std::vector<NodeRef>, RunsLater> ready;
  for (size_t i = 0; i < roots.size(); ++i) {
    Node& node = *roots[i].node;
    op::BackwardTask& task = node.task;
    const bool is_first = task.gradients.empty();
    task.gradients.resize(node.outputs.size());
    // A gradient of another type is cast, and the engine's caller holds the result to the end.
    const DType type = node.outputs[roots[i].input_number].dtype;
    const bool is_cast = gradients[i].dtype() != type;
    if (is_cast) gradients[i] = op::to(eager_, gradients[i], type);
    task.gradients[roots[i].input_number] = gradients[i];
    if (!is_cast) gradients[i] = Tensor();
    if (is_first && task.dependencies == 0) ready.push(roots[i].node);
  }

  Grads handed_out(leaves.size());
  Grads grads;
  Grads results;
  while (!ready.empty()) {
    const NodeRef node = ready.top();
    ready.pop();
    grads.clear();
    grads.swap(node->task.gradients);
    grads.resize(node->outputs.size());
    if (const auto leaf = std::ranges::find(leaves, node.get()); leaf != leaves.end()) {
      handed_out[static_cast<size_t>(leaf - leaves.begin())] = std::move(grads[0]);
      continue;
    }
    if (options_.hooks.before) options_.hooks.before(*node);
    if (wanted != nullptr && wanted->before) wanted->before(*node, grads);
    if (node->variable) {
      accumulate_leaf(*node, grads);
      continue;
    }
    call(*node, grads, results);
    grads.clear();
    if (!retains) {
      node->saved.clear();
      node->hook_owner.reset();
    }
    for (size_t i = 0; i < results.size(); ++i) {
      const op::Edge& edge = node->next[i];
      if (!edge.node || !edge.node->task.is_wanted) continue;
      op::BackwardTask& task = edge.node->task;
      task.gradients.resize(edge.node->outputs.size());
      if (results[i]) add_to_buffer(task.gradients[edge.input_number], std::move(results[i]));
      if (--task.dependencies == 0) ready.push(edge.node);
    }
    results.clear();
  }
  eager_.set_thread(thread_before);
  eager_.set_module(module_before);
  return handed_out;
}

}  // namespace headroom::step
