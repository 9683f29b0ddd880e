#include "model/traced_regions.h"

#include <algorithm>
#include <map>
#include <set>

namespace headroom::model {

namespace {

struct Span {
  RegionKind kind = RegionKind::other;
  std::string name;
  uint32_t begin = 0;  // steps
  uint32_t end = 0;
};

// "encoder.layers" of "encoder.layers.3"; empty where the last part is no number.
std::string list_of(const std::string& name) {
  const size_t dot = name.rfind('.');
  const std::string last = dot == std::string::npos ? name : name.substr(dot + 1);
  const bool is_number =
      !last.empty() && std::ranges::all_of(last, [](char c) { return c >= '0' && c <= '9'; });
  if (!is_number) return {};
  return (dot == std::string::npos ? std::string() : name.substr(0, dot)) + "#";
}

// Names of the layers: outermost entries of lists, with siblings alike and modules inside.
std::set<std::string> layer_names(const std::vector<TracedModule>& modules) {
  std::map<std::pair<std::string, std::string>, int> siblings;
  std::set<std::string> parents;
  for (const TracedModule& module : modules) {
    if (const std::string list = list_of(module.name); !list.empty()) {
      ++siblings[{list, module.kind}];
    }
    const size_t dot = module.name.rfind('.');
    if (dot != std::string::npos) parents.insert(module.name.substr(0, dot));
  }
  std::set<std::string> names;
  for (const TracedModule& module : modules) {
    const std::string list = list_of(module.name);
    if (list.empty() || siblings[{list, module.kind}] < 2 || !parents.contains(module.name)) {
      continue;
    }
    bool is_inner = false;
    for (size_t dot = module.name.find('.'); dot != std::string::npos;
         dot = module.name.find('.', dot + 1)) {
      is_inner = is_inner || names.contains(module.name.substr(0, dot));
    }
    if (!is_inner) names.insert(module.name);
  }
  return names;
}

// The layer that a module belongs to, or nothing.
std::string layer_of(const std::string& module, const std::set<std::string>& layers) {
  for (size_t dot = module.find('.');; dot = module.find('.', dot + 1)) {
    const std::string head = module.substr(0, dot);
    if (layers.contains(head)) return head;
    if (dot == std::string::npos) return {};
  }
}

// Layers that run once and in one piece, in order.
std::vector<Span> layer_spans(const TracedParts& parts) {
  const std::set<std::string> layers = layer_names(parts.modules);
  std::vector<Span> spans;
  std::map<std::string, int> runs;
  for (uint32_t i = 0; i < parts.steps.size(); ++i) {
    const std::string layer = layer_of(parts.steps[i].module, layers);
    if (layer.empty()) continue;
    if (!spans.empty() && spans.back().end == i && spans.back().name == layer) {
      ++spans.back().end;
      continue;
    }
    ++runs[layer];
    spans.push_back({RegionKind::layer, layer, i, i + 1});
  }
  std::erase_if(spans, [&](const Span& span) { return runs[span.name] != 1; });
  return spans;
}

std::vector<Span> find_spans(const TracedParts& parts) {
  std::vector<Span> spans = layer_spans(parts);
  const uint32_t layers_end = spans.empty() ? 0 : spans.back().end;
  const auto count = static_cast<uint32_t>(parts.steps.size());
  const uint32_t loss = parts.loss == kNoOperation ? count : parts.loss;
  if (parts.lm_head != kNoOperation && parts.lm_head >= layers_end && parts.lm_head < loss) {
    const std::string& module = parts.steps[parts.lm_head].module;
    Span head{RegionKind::lm_head, module.empty() ? "lm_head" : module, parts.lm_head,
              parts.lm_head + 1};
    const auto belongs = [&](uint32_t step) { return parts.steps[step].module == module; };
    while (!module.empty() && head.begin > layers_end && belongs(head.begin - 1)) --head.begin;
    while (!module.empty() && head.end < loss && belongs(head.end)) ++head.end;
    spans.push_back(head);
  }
  if (loss < count && loss >= layers_end) {
    spans.push_back({RegionKind::loss, "loss", loss, count});
  }
  return spans;
}

// What a region takes from outside, in order of use, and what of its own outlives it.
void find_ends(const Graph& graph, const std::vector<bool>& permanent, Region& region) {
  std::set<ValueId> born;
  std::set<ValueId> taken;
  std::vector<ValueId> order;
  for (uint32_t i = region.begin; i < region.end; ++i) {
    const Instruction& instruction = graph.instructions[i];
    if (instruction.kind == InstructionKind::drop) born.erase(instruction.index);
    if (instruction.kind != InstructionKind::operation) continue;
    const Operation& operation = graph.operations[instruction.index];
    for (const ValueId id : operation.inputs) {
      if (born.contains(id) || permanent[id] || !taken.insert(id).second) continue;
      region.inputs.push_back(id);
    }
    for (const ValueId id : operation.outputs) {
      if (!taken.contains(id) && !permanent[id]) born.insert(id);
    }
  }
  region.outputs.assign(born.begin(), born.end());
}

class Arranger {
 public:
  Arranger(const TracedParts& parts, Graph& graph) : parts_(parts), graph_(graph) {}

  void run() {
    const std::vector<Span> spans = find_spans(parts_);
    graph_.modules.assign(1, "");
    for (const Span& span : spans) {
      graph_.regions.push_back({.kind = span.kind, .name = span.name, .inputs = {}, .outputs = {}});
      graph_.modules.push_back(span.name);
    }
    born_in_.assign(graph_.value_count, 0);
    size_t next = 0;
    for (uint32_t i = 0; i < parts_.steps.size(); ++i) {
      if (next < spans.size() && spans[next].begin == i) {
        graph_.regions[next].begin = at();
        instruct(InstructionKind::enter, static_cast<uint32_t>(next));
        current_ = static_cast<uint32_t>(next) + 1;
      }
      const bool ends = current_ != 0 && spans[next].end == i + 1;
      place(parts_.steps[i], ends);
      if (ends) ++next;
    }
    for (Region& region : graph_.regions) find_ends(graph_, parts_.permanent, region);
  }

 private:
  // A caller's variables go after its callee has returned, so past the region's end.
  void place(const TracedStep& step, bool ends_region) {
    if (step.operation != kNoOperation) {
      Operation& operation = graph_.operations[step.operation];
      operation.module = current_;
      instruct(InstructionKind::operation, step.operation);
      for (const ValueId id : operation.outputs) born_in_[id] = current_;
    }
    const uint32_t inside = current_;
    for (const ValueId id : step.drops) {
      if (born_in_[id] == inside) instruct(InstructionKind::drop, id);
    }
    if (ends_region) {
      instruct(InstructionKind::leave, current_ - 1);
      graph_.regions[current_ - 1].end = at();
      current_ = 0;
    }
    for (const ValueId id : step.drops) {
      if (born_in_[id] != inside) instruct(InstructionKind::drop, id);
    }
  }

  [[nodiscard]] uint32_t at() const { return static_cast<uint32_t>(graph_.instructions.size()); }
  void instruct(InstructionKind kind, uint32_t index) {
    graph_.instructions.push_back({kind, index});
  }

  const TracedParts& parts_;
  Graph& graph_;
  std::vector<uint32_t> born_in_;  // by value: the region, as a module id
  uint32_t current_ = 0;
};

}  // namespace

void arrange(const TracedParts& parts, Graph& graph) { Arranger(parts, graph).run(); }

}  // namespace headroom::model
