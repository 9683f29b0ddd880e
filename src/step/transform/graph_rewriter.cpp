#include "step/transform/graph_rewriter.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace headroom::step {

using model::Graph;
using model::InstructionKind;
using model::kNoValue;
using model::Operation;
using model::Parameter;
using model::ValueId;
using model::Var;

namespace {

Graph declarations_of(const Graph& source) {
  Graph graph;
  graph.buffers = source.buffers;
  graph.inputs = source.inputs;
  graph.value_count = source.value_count;
  graph.modules.emplace_back();
  // Adapters and casts may double them; vectors that grow touch the most memory.
  graph.operations.reserve(2 * source.operations.size());
  graph.instructions.reserve(2 * source.instructions.size());
  graph.regions.reserve(source.regions.size());
  return graph;
}

}  // namespace

GraphRewriter::GraphRewriter(const Graph& source)
    : source_(source), builder_(declarations_of(source)), names_(source.value_count) {
  std::iota(names_.begin(), names_.end(), 0U);
}

ValueId GraphRewriter::renamed(ValueId value) const {
  return value == kNoValue ? kNoValue : names_[value];
}

ValueId GraphRewriter::output(ValueId value) const {
  const auto found = outputs_.find(value);
  return found == outputs_.end() ? renamed(value) : found->second;
}

void GraphRewriter::rename(std::vector<ValueId>& values) const {
  for (ValueId& value : values) value = renamed(value);
}

Var GraphRewriter::value(ValueId id) {
  return id == kNoValue ? Var() : builder_.existing(renamed(id));
}

Var GraphRewriter::add_parameter(uint32_t after, Parameter parameter) {
  Var var = builder_.new_parameter_value();
  parameter.value = var.id();
  added_.push_back({after, std::move(parameter)});
  return var;
}

void GraphRewriter::copy_operation(const Operation& operation, const Replace& replace) {
  Outputs outputs = replace(operation);
  if (outputs.empty()) {
    builder_.copy(operation, names_);
    return;
  }
  HEADROOM_CHECK(outputs.size() == operation.outputs.size(), "a replacement lacks outputs");
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool is_gone = !outputs[i];
    names_[operation.outputs[i]] = is_gone ? kNoValue : builder_.release(std::move(outputs[i]));
  }
}

Var GraphRewriter::copy_of(const Operation& operation) {
  std::vector<Var> inputs;
  for (const ValueId id : operation.inputs) inputs.push_back(value(id));
  return builder_.apply(operation.kind, std::move(inputs), operation.attributes);
}

void GraphRewriter::let_go(ValueId value) {
  for (size_t i = at_ + 1; i < source_.instructions.size(); ++i) {
    const model::Instruction& instruction = source_.instructions[i];
    if (instruction.kind != InstructionKind::drop) return;
    if (instruction.index != value || names_[value] == kNoValue) continue;
    builder_.drop(names_[value]);
    names_[value] = kNoValue;
    return;
  }
}

ValueId GraphRewriter::keep_beside(ValueId value, Var var) {
  const ValueId kept = builder_.release(std::move(var));
  beside_[value].push_back(kept);
  return kept;
}

void GraphRewriter::drop_beside(ValueId value) {
  const auto beside = beside_.find(value);
  if (beside == beside_.end()) return;
  for (const ValueId kept : beside->second) builder_.drop(kept);
  beside_.erase(beside);
}

GraphRewriter::Outputs GraphRewriter::gone(const Operation& operation) {
  return Outputs(operation.outputs.size());
}

std::vector<Parameter> GraphRewriter::merged_parameters() const {
  std::vector<Added> added = added_;
  std::ranges::stable_sort(added, {}, &Added::after);
  std::vector<Parameter> parameters;
  std::vector<uint32_t> places;  // where a parameter of the source went
  auto next = added.begin();
  for (uint32_t i = 0; i < source_.parameters.size(); ++i) {
    places.push_back(static_cast<uint32_t>(parameters.size()));
    parameters.push_back(source_.parameters[i]);
    for (; next != added.end() && next->after == i; ++next) {
      parameters.push_back(next->parameter);
      parameters.back().chunk = source_.parameters[i].chunk;
    }
  }
  for (Parameter& parameter : parameters) {
    if (parameter.tied_to) parameter.tied_to = places[*parameter.tied_to];
  }
  return parameters;
}

// Chunks that end where they end in the copy. They are no model's last, so they have no loss.
std::vector<model::GraphChunk> GraphRewriter::placed(std::vector<model::GraphChunk> chunks) const {
  uint32_t begin = 0;
  for (model::GraphChunk& chunk : chunks) {
    chunk.begin = std::exchange(begin, chunk.end);
    for (ValueId& id : chunk.outputs) id = output(id);
  }
  return chunks;
}

Graph GraphRewriter::run(const Replace& replace, const std::function<void()>& at_end) {
  std::vector<uint32_t> open;
  std::vector<model::GraphChunk> chunks = source_.chunks_before;
  for (at_ = 0; at_ < source_.instructions.size(); ++at_) {
    for (size_t i = 0; i < chunks.size(); ++i) {
      if (source_.chunks_before[i].end == at_) chunks[i].end = builder_.instruction_count();
    }
    const model::Instruction& instruction = source_.instructions[at_];
    switch (instruction.kind) {
      case InstructionKind::operation:
        copy_operation(source_.operations[instruction.index], replace);
        break;
      case InstructionKind::drop:
        if (const ValueId value = renamed(instruction.index); value != kNoValue) {
          builder_.drop(value);
        }
        drop_beside(instruction.index);
        break;
      case InstructionKind::enter: {
        model::Region region = source_.regions[instruction.index];
        rename(region.inputs);
        open.push_back(builder_.enter(std::move(region)));
        break;
      }
      case InstructionKind::leave:
        builder_.leave(open.back());
        open.pop_back();
        break;
    }
  }
  if (at_end) at_end();
  Graph graph = builder_.finish();
  for (model::Region& region : graph.regions) rename(region.outputs);
  graph.parameters = merged_parameters();
  graph.logits = output(source_.logits);
  graph.loss = renamed(source_.loss);
  for (const ValueId id : source_.outputs) graph.outputs.push_back(output(id));
  graph.passed_on = source_.passed_on;
  graph.chunks_before = placed(std::move(chunks));
  return graph;
}

}  // namespace headroom::step
