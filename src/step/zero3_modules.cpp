#include "step/zero3_modules.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "step/transform/input_gradients.h"

namespace headroom::step {

namespace {

using model::Graph;
using model::InstructionKind;
using model::kNoValue;
using model::Operation;
using model::ValueId;

class Modules {
 public:
  explicit Modules(const Graph& graph) : graph_(graph) {
    for (size_t i = 0; i < graph.parameters.size(); ++i) {
      if (!graph.parameters[i].tied_to) parameter_of_[graph.parameters[i].value] = i;
    }
  }

  std::vector<Zero3Module> find() {
    for (uint32_t i = 0; i < graph_.instructions.size(); ++i) {
      if (graph_.instructions[i].kind != InstructionKind::operation) continue;
      for (const ValueId input : graph_.operations[graph_.instructions[i].index].inputs) {
        const auto at = parameter_of_.find(input);
        if (at != parameter_of_.end()) use(at->second, i);
      }
    }
    for (Zero3Module& module : modules_) add_ends(module);
    add_around();
    add_activations();
    // What begins together: the outer before the inner.
    std::ranges::stable_sort(modules_, [](const Zero3Module& a, const Zero3Module& b) {
      if (a.first != b.first) return a.first < b.first;
      const bool is_outer = a.parameters.empty() && !b.parameters.empty();
      return a.last != b.last ? a.last > b.last : is_outer;
    });
    return std::move(modules_);
  }

 private:
  // The module goes on, or, where it takes the same parameter again and others ran in between,
  // runs once more.
  void use(size_t parameter, uint32_t instruction) {
    const std::string_view name = zero3_module_name(graph_.parameters[parameter]);
    const auto [at, is_new] = latest_.try_emplace(name, modules_.size());
    if (!is_new) {
      std::vector<size_t>& taken = modules_[at->second].parameters;
      const bool has_it = std::ranges::find(taken, parameter) != taken.end();
      if (!has_it || at->second == running_) {
        if (!has_it) taken.insert(std::ranges::upper_bound(taken, parameter), parameter);
        modules_[at->second].last = instruction;
        running_ = at->second;
        return;
      }
      at->second = modules_.size();
    }
    running_ = modules_.size();
    modules_.push_back({{parameter}, instruction, instruction, {}, {}});
  }

  void add_ends(Zero3Module& module) const {
    std::unordered_set<ValueId> made;
    for (uint32_t i = module.first; i <= module.last; ++i) {
      if (graph_.instructions[i].kind != InstructionKind::operation) continue;
      const Operation& operation = graph_.operations[graph_.instructions[i].index];
      const auto is_own = [&](ValueId input) {
        const auto at = parameter_of_.find(input);
        return at != parameter_of_.end() &&
               std::ranges::find(module.parameters, at->second) != module.parameters.end();
      };
      if (std::ranges::any_of(operation.inputs, is_own)) {
        for (const ValueId input : operation.inputs) {
          const bool is_outside =
              input != kNoValue && !made.contains(input) && !parameter_of_.contains(input);
          if (is_outside && std::ranges::find(module.inputs, input) == module.inputs.end()) {
            module.inputs.push_back(input);
          }
        }
      }
      made.insert(operation.outputs.begin(), operation.outputs.end());
    }
    module.last = end_with_hook(graph_, module.last);
    const Operation& last = graph_.operations[graph_.instructions[module.last].index];
    module.outputs.assign(last.outputs.begin(), last.outputs.end());
  }

  // The whole model, "model" and "model.decoder" of "model.decoder.layers.0", and regions that are
  // modules: between a region's enter and its leave. A layer's hooks stand around a checkpoint of
  // it (zero3.cpp).
  void add_around() {
    std::string_view first_layer;
    for (const model::Region& region : graph_.regions) {
      using model::RegionKind;
      const bool is_layer = region.kind == RegionKind::layer;
      if (is_layer && first_layer.empty()) first_layer = region.name;
      const bool is_module =
          is_layer || region.kind == RegionKind::attention || region.kind == RegionKind::mlp;
      if (!is_module || region.end < region.begin + 3) continue;
      Zero3Module module{{}, region.begin + 1, region.end - 2, region.inputs, region.outputs};
      modules_.push_back(std::move(module));
    }
    const auto end = static_cast<uint32_t>(graph_.instructions.size());
    if (end == 0) return;
    Zero3Module root{{}, 0, end - 1, {}, graph_.outputs};
    if (graph_.loss != kNoValue) root.outputs.push_back(graph_.loss);
    modules_.push_back(std::move(root));
    add_bodies(first_layer, end);
  }

  // Between the model and its layers; what the head takes is what they answer with.
  void add_bodies(std::string_view first_layer, uint32_t end) {
    const auto head =
        std::ranges::find(graph_.regions, model::RegionKind::lm_head, &model::Region::kind);
    if (head == graph_.regions.end() || head->begin == 0 || head->begin >= end) return;
    const auto names = std::ranges::count(first_layer, '.') + 1;
    for (auto i = names - 2; i > 0; --i) {
      modules_.push_back({{}, 0, head->begin - 1, {}, head->inputs});
    }
  }

  // An operator alone, or the first of several that are one function of their own.
  void add_activations() {
    using op::OpKind;
    for (uint32_t i = 0; i < graph_.instructions.size(); ++i) {
      if (graph_.instructions[i].kind != InstructionKind::operation) continue;
      const Operation& operation = graph_.operations[graph_.instructions[i].index];
      switch (operation.kind) {
        case OpKind::cos:
        case OpKind::gelu:
        case OpKind::gelu_tanh:
        case OpKind::gelu_bloom:
        case OpKind::silu:
        case OpKind::relu:
        case OpKind::tanh: {
          Zero3Module module{{}, i, i, {operation.inputs[0]}, {}};
          module.outputs.assign(operation.outputs.begin(), operation.outputs.end());
          modules_.push_back(std::move(module));
          break;
        }
        default:
          break;
      }
    }
  }

  const Graph& graph_;
  std::unordered_map<ValueId, size_t> parameter_of_;
  std::unordered_map<std::string_view, size_t> latest_;  // into modules_, by name
  std::vector<Zero3Module> modules_;
  size_t running_ = 0;  // the one that took a parameter last
};

}  // namespace

std::string_view zero3_module_name(const model::Parameter& parameter) {
  const std::string_view name = parameter.name;
  const size_t dot = name.rfind('.');
  return name.substr(0, dot == std::string_view::npos ? 0 : dot);
}

std::vector<Zero3Module> zero3_modules(const Graph& graph) { return Modules(graph).find(); }

}  // namespace headroom::step
