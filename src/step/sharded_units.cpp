#include "step/sharded_units.h"

#include <algorithm>
#include <map>

#include "step/transform/input_gradients.h"

namespace headroom::step {

namespace {

using model::Graph;
using model::InstructionKind;
using model::kNoValue;
using model::Operation;
using model::RegionKind;
using model::ValueId;

constexpr uint32_t kNobody = UINT32_MAX;

bool is_cast(op::OpKind kind) { return kind == op::OpKind::cast || kind == op::OpKind::autocast; }

// A stretch of instructions, growing.
struct Span {
  uint32_t begin = kNobody;
  uint32_t end = 0;
  void add(uint32_t instruction) {
    begin = std::min(begin, instruction);
    end = std::max(end, instruction + 1);
  }
};

class Units {
 public:
  Units(const Graph& graph, const WrapOptions& options) : graph_(graph), options_(options) {
    for (uint32_t i = 0; i < graph.parameters.size(); ++i) {
      if (!graph.parameters[i].tied_to) parameter_of_[graph.parameters[i].value] = i;
    }
    uses_.resize(graph.parameters.size());
    find_uses();
  }

  std::vector<ShardedUnit> find() {
    taken_.resize(graph_.parameters.size());
    std::vector<ShardedUnit> units;
    for (uint32_t i = 0; i < graph_.parameters.size(); ++i) {
      taken_[i] = options_.adapters == WrapAdapters::ignored && graph_.parameters[i].adapter;
    }
    if (options_.adapters == WrapAdapters::apart) {
      for (uint32_t i = 0; i < graph_.parameters.size(); ++i) {
        if (graph_.parameters[i].trainable && uses_[i].end > 0) units.push_back(unit_of_leaf(i));
      }
    }
    for (const model::Region& region : graph_.regions) {
      if (region.kind != RegionKind::experts) continue;
      units.push_back(unit_of_region(region, 0));
      units.back().is_experts = true;
    }
    for (const model::Region& region : graph_.regions) {
      if (region.kind != RegionKind::layer) continue;
      units.push_back(unit_of_region(region, options_.inside_checkpoints ? 1 : 0));
    }
    if (options_.ends) add_ends(units);
    std::ranges::stable_sort(units, {}, [](const ShardedUnit& unit) { return unit.end; });
    keep_whole(units);
    const std::vector<model::GraphChunk> chunks = model::chunks_of(graph_);
    for (ShardedUnit& unit : units) {
      const auto is_in = [&](const model::GraphChunk& chunk) { return unit.end <= chunk.end; };
      unit.chunk = static_cast<uint32_t>(std::ranges::find_if(chunks, is_in) - chunks.begin());
    }
    for (uint32_t i = 0; i < chunks.size(); ++i) units.push_back(root(chunks[i], i));
    return units;
  }

 private:
  // An adapter's weight may be cast by an operator of its own before it is used.
  void find_uses() {
    std::map<ValueId, uint32_t> cast_of;
    for (uint32_t i = 0; i < graph_.instructions.size(); ++i) {
      if (graph_.instructions[i].kind != InstructionKind::operation) continue;
      const Operation& operation = graph_.operations[graph_.instructions[i].index];
      for (const ValueId input : operation.inputs) {
        auto at = parameter_of_.find(input);
        if (at == parameter_of_.end()) {
          at = cast_of.find(input);
          if (at == cast_of.end()) continue;
        } else if (is_cast(operation.kind)) {
          cast_of[operation.outputs[0]] = at->second;
        }
        uses_[at->second].add(i);
      }
    }
  }

  ShardedUnit unit_of_leaf(uint32_t parameter) {
    ShardedUnit unit;
    unit.parameters = {parameter};
    taken_[parameter] = true;
    unit.begin = uses_[parameter].begin;
    unit.end = uses_[parameter].end;
    const Operation& last = graph_.operations[graph_.instructions[unit.end - 1].index];
    unit.inputs = {last.inputs[0]};
    unit.outputs.assign(last.outputs.begin(), last.outputs.end());
    return unit;
  }

  ShardedUnit unit_of_embedding(uint32_t embedding) {
    ShardedUnit unit = unit_of_leaf(embedding);
    unit.inputs.clear();  // indices
    unit.end = end_with_hook(graph_, unit.end - 1) + 1;
    const Operation& last = graph_.operations[graph_.instructions[unit.end - 1].index];
    unit.outputs.assign(last.outputs.begin(), last.outputs.end());
    return unit;
  }

  // `inset` instructions within the region's own.
  ShardedUnit unit_of_region(const model::Region& region, uint32_t inset) {
    ShardedUnit unit;
    unit.begin = region.begin + inset;
    unit.end = region.end - inset;
    unit.inputs = region.inputs;
    unit.outputs = region.outputs;
    for (uint32_t i = 0; i < graph_.parameters.size(); ++i) {
      if (uses_[i].begin >= unit.begin && uses_[i].end <= unit.end) take(i, unit);
    }
    return unit;
  }

  // Units are in order; the head's, behind the layers', is whole already.
  void keep_whole(std::vector<ShardedUnit>& units) const {
    if (options_.reshards == Reshards::none) {
      for (ShardedUnit& unit : units) unit.stays_whole = true;
    } else if (options_.reshards == Reshards::all_but_last_layer) {
      const auto last =
          std::ranges::find(units.rbegin(), units.rend(), false, &ShardedUnit::stays_whole);
      if (last != units.rend()) last->stays_whole = true;
    }
  }

  // Where a weight is both, neither is a unit.
  void add_ends(std::vector<ShardedUnit>& units) {
    uint32_t layers_end = 0;
    for (const ShardedUnit& unit : units) layers_end = std::max(layers_end, unit.end);
    const auto find = [&](model::ParameterRole role) {
      const auto is_it = [&](const model::Parameter& p) { return p.role == role; };
      const auto at = std::ranges::find_if(graph_.parameters, is_it);
      return static_cast<uint32_t>(at - graph_.parameters.begin());
    };
    const uint32_t embedding = find(model::ParameterRole::embedding);
    const uint32_t head = find(model::ParameterRole::lm_head);
    const auto count = static_cast<uint32_t>(graph_.parameters.size());
    const bool is_tied = head < count && graph_.parameters[head].tied_to.has_value();
    if (embedding < count && uses_[embedding].end > 0 && !is_tied && head < count) {
      units.push_back(unit_of_embedding(embedding));
    }
    if (head < count && !is_tied && uses_[head].begin >= layers_end) {
      units.push_back(unit_of_head(head, layers_end));
    }
  }

  ShardedUnit unit_of_head(uint32_t head, uint32_t layers_end) {
    ShardedUnit unit = unit_of_leaf(head);
    unit.stays_whole = true;
    for (uint32_t i = 0; i < graph_.parameters.size(); ++i) {
      if (i == head || uses_[i].begin < layers_end || uses_[i].end > unit.begin) continue;
      take(i, unit);
    }
    std::ranges::sort(unit.parameters);
    unit.begin = layers_end;
    for (const model::Region& region : graph_.regions) {
      const bool is_last = region.kind == RegionKind::layer && region.end == layers_end;
      if (is_last) unit.inputs = region.outputs;
    }
    return unit;
  }

  ShardedUnit root(const model::GraphChunk& chunk, uint32_t number) {
    ShardedUnit unit;
    unit.begin = chunk.begin;
    unit.end = chunk.end;
    unit.chunk = number;
    for (const model::GraphInput& input : chunk.inputs) unit.inputs.push_back(input.value);
    unit.outputs = chunk.outputs;
    if (chunk.logits != kNoValue) unit.outputs.push_back(chunk.logits);
    if (chunk.loss != kNoValue) unit.outputs.push_back(chunk.loss);
    for (uint32_t i = 0; i < graph_.parameters.size(); ++i) {
      if (graph_.parameters[i].chunk == number) take(i, unit);
    }
    return unit;
  }

  void take(uint32_t parameter, ShardedUnit& unit) {
    if (taken_[parameter] || graph_.parameters[parameter].tied_to) return;
    taken_[parameter] = true;
    unit.parameters.push_back(parameter);
  }

  const Graph& graph_;
  const WrapOptions& options_;
  std::map<ValueId, uint32_t> parameter_of_;
  std::vector<Span> uses_;  // by parameter; begin is kNobody where there is none
  std::vector<bool> taken_;
};

}  // namespace

std::vector<ShardedUnit> sharded_units(const Graph& graph, const WrapOptions& options) {
  return Units(graph, options).find();
}

}  // namespace headroom::step
