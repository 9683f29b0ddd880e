#include "step/split_backward.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "operator/functional.h"

namespace headroom::step {

using op::Edge;
using op::Grads;
using op::Node;
using op::NodeRef;
using op::Tensor;

namespace {

// By node, those that its gradients come from.
using Before = std::map<Node*, std::vector<Node*>>;

Before all_before(Node* root) {
  Before before;
  std::deque<Node*> pending{root};
  while (!pending.empty()) {
    Node* node = pending.front();
    pending.pop_front();
    for (const Edge& edge : node->next) {
      if (!edge.node) continue;
      std::vector<Node*>& sources = before[edge.node.get()];
      if (sources.empty()) pending.push_back(edge.node.get());
      sources.push_back(node);
    }
  }
  return before;
}

// All that gradients of `node` come through, it included, but for what is beyond nodes in `ends`;
// those that are met are added to `met`.
std::set<Node*> closure_of(Node* node, const Before& before, const std::set<Node*>& ends,
                           std::vector<Node*>& met) {
  std::set<Node*> closure{node};
  std::deque<Node*> pending{node};
  while (!pending.empty()) {
    const auto sources = before.find(pending.front());
    pending.pop_front();
    if (sources == before.end()) continue;
    for (Node* source : sources->second) {
      if (ends.contains(source)) {
        if (std::ranges::find(met, source) == met.end()) met.push_back(source);
      } else if (closure.insert(source).second) {
        pending.push_back(source);
      }
    }
  }
  return closure;
}

class Grouping {
 public:
  Grouping(Node* root, Node* input) : before_(all_before(root)) {
    std::vector<Node*> none;
    to_input_ = closure_of(input, before_, {}, none);
    op::require(to_input_.contains(root), "a stage's output that does not come of its input");
  }

  void add(Node* parameter) {
    std::vector<Node*> met;
    const std::set<Node*> closure = closure_of(parameter, before_, to_input_, met);
    if (met.empty()) return;  // no gradient comes this way
    size_t group = groups_.size();
    for (Node* start : met) {
      if (const auto known = group_of_.find(start); known != group_of_.end()) group = known->second;
    }
    if (group == groups_.size()) groups_.emplace_back();
    groups_[group].parameters.emplace_back(parameter);
    for (Node* start : met) {
      if (!group_of_.emplace(start, group).second) continue;
      groups_[group].starts.emplace_back(start);
      groups_[group].between.emplace_back(start);
    }
    for (Node* node : closure) {
      if (between_.insert(node).second) groups_[group].between.emplace_back(node);
    }
  }

  [[nodiscard]] std::vector<Node*> to_input() const { return {to_input_.begin(), to_input_.end()}; }

  std::vector<WeightGroup> take() {
    for (WeightGroup& group : groups_) group.arrived.resize(group.starts.size());
    return std::move(groups_);
  }

 private:
  Before before_;
  std::set<Node*> to_input_;
  std::vector<WeightGroup> groups_;
  std::map<Node*, size_t> group_of_;
  std::set<Node*> between_;  // of all groups, which share none
};

struct Place {
  size_t group = 0, start = 0;
};

std::map<Node*, Place> places_of(const std::vector<WeightGroup>& groups) {
  std::map<Node*, Place> places;
  for (size_t i = 0; i < groups.size(); ++i) {
    for (size_t j = 0; j < groups[i].starts.size(); ++j) {
      places[groups[i].starts[j].get()] = {i, j};
    }
  }
  return places;
}

void note_kept(op::Eager& eager, const WeightGroup& group) {
  for (const Grads& gradients : group.arrived) {
    for (const Tensor& gradient : gradients) {
      if (gradient) eager.note_saved(gradient);
    }
  }
}

// Gradients of a group's parameters, from what arrived.
Grads gradients_of(Engine& engine, const WeightGroup& group, std::vector<Edge>& edges,
                   Grads& arrived) {
  for (size_t i = 0; i < group.starts.size(); ++i) {
    for (uint32_t output = 0; output < group.arrived[i].size(); ++output) {
      if (!group.arrived[i][output]) continue;
      edges.push_back({group.starts[i], output});
      arrived.push_back(group.arrived[i][output]);
    }
  }
  std::vector<Node*> leaves;
  for (const NodeRef& parameter : group.parameters) leaves.push_back(parameter.get());
  std::vector<Node*> between;
  for (const NodeRef& node : group.between) between.push_back(node.get());
  GradientsWanted wanted;
  wanted.leaves = leaves;
  wanted.between = between;
  return edges.empty() ? Grads(leaves.size()) : engine.gradients_of(edges, arrived, wanted);
}

}  // namespace

std::vector<WeightGroup> backward_to_input(Engine& engine, op::Eager& eager, const Tensor& root,
                                           Tensor seed, const Tensor& input,
                                           std::span<const Tensor> parameters) {
  const Edge from = eager.gradient_edge(root);
  const Edge to = eager.gradient_edge(input);
  Grouping grouping(from.node.get(), to.node.get());
  for (const Tensor& parameter : parameters) {
    if (parameter.requires_grad()) grouping.add(eager.gradient_edge(parameter).node.get());
  }
  const std::vector<Node*> to_input = grouping.to_input();
  std::vector<WeightGroup> groups = grouping.take();
  const auto places = places_of(groups);
  Node* const leaf = to.node.get();
  GradientsWanted wanted;
  wanted.leaves = std::span(&leaf, 1);
  wanted.between = to_input;
  wanted.retain_graph = true;
  wanted.before = [&](Node& node, const Grads& gradients) {
    const auto place = places.find(&node);
    if (place != places.end()) groups[place->second.group].arrived[place->second.start] = gradients;
  };
  Grads seeds;
  seeds.push_back(seed);  // which the caller's list has until it returns
  Grads made = engine.gradients_of(std::span(&from, 1), std::move(seeds), wanted);
  for (const WeightGroup& group : groups) note_kept(eager, group);
  input->grad = std::move(made[0]);
  root->grad_fn = NodeRef();
  root->requires_grad = false;
  return groups;
}

void backward_to_weights(Engine& engine, op::Eager& eager, std::vector<WeightGroup> groups,
                         const std::function<void(const Tensor& parameter)>& accumulated) {
  // Python's names of these last until the next group has its own.
  Grads gradients;
  std::vector<Edge> edges;
  Grads arrived;
  for (WeightGroup& group : groups) {
    edges.clear();
    arrived.clear();
    Grads made = gradients_of(engine, group, edges, arrived);
    gradients = std::move(made);
    group.starts.clear();
    group.between.clear();
    group.arrived.clear();
    for (size_t i = 0; i < gradients.size(); ++i) {
      const Tensor variable = group.parameters[i]->variable;
      if (!gradients[i]) continue;
      if (variable->grad) {
        const op::GradMode no_grad(eager, false);
        op::add_inplace(eager, variable->grad, gradients[i]);
      } else {
        variable->grad = gradients[i];
      }
      accumulated(variable);
    }
  }
}

}  // namespace headroom::step
