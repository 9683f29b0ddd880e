#include "model/builder.h"

namespace headroom::model {

Var::Var(const Var& other) : slot_(other.slot_) {
  if (slot_) ++slot_->refs;
}
Var::Var(Var&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
Var& Var::operator=(Var other) noexcept {
  std::swap(slot_, other.slot_);
  return *this;
}
Var::~Var() {
  if (!slot_ || --slot_->refs > 0) return;
  if (!slot_->permanent) slot_->builder->drop(slot_->id);
  delete slot_;
}
ValueId Var::id() const { return slot_ ? slot_->id : kNoValue; }

GraphBuilder::GraphBuilder() {
  graph_.modules.emplace_back();
  // For a model of some tens of layers: vectors that grow touch twice the memory.
  graph_.operations.reserve(2048);
  graph_.instructions.reserve(8192);
  graph_.parameters.reserve(512);
}

void GraphBuilder::instruct(InstructionKind kind, size_t index) {
  graph_.instructions.push_back({kind, static_cast<uint32_t>(index)});
}

void GraphBuilder::drop(ValueId value) {
  if (!finished_) instruct(InstructionKind::drop, value);
}

Var GraphBuilder::make_value(bool permanent) {
  return Var(new Var::Slot{1, graph_.value_count++, this, permanent});
}

Var GraphBuilder::parameter(std::string name, const Dims& shape, ParameterRole role) {
  Var var = make_value(true);
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.shape = shape;
  parameter.role = role;
  parameter.value = var.id();
  parameter.chunk = static_cast<uint32_t>(graph_.chunks_before.size());
  graph_.parameters.push_back(std::move(parameter));
  return var;
}

Var GraphBuilder::parameter(std::string name, const Dims& shape, ParameterRole role, DType dtype,
                            bool trainable) {
  Var var = parameter(std::move(name), shape, role);
  graph_.parameters.back().dtype = dtype;
  graph_.parameters.back().trainable = trainable;
  return var;
}

Var GraphBuilder::tied(std::string name, const Var& holder, ParameterRole role) {
  for (uint32_t i = 0; i < graph_.parameters.size(); ++i) {
    if (graph_.parameters[i].value != holder.id()) continue;
    Parameter parameter;
    parameter.name = std::move(name);
    parameter.shape = graph_.parameters[i].shape;
    parameter.role = role;
    parameter.tied_to = i;
    parameter.value = holder.id();
    graph_.parameters.push_back(std::move(parameter));
    return holder;
  }
  HEADROOM_CHECK(false, "tied to something that is no parameter");
  return {};
}

Var GraphBuilder::buffer(std::string name, const Dims& shape, std::optional<DType> dtype,
                         bool persistent) {
  Var var = make_value(true);
  Parameter buffer;
  buffer.name = std::move(name);
  buffer.shape = shape;
  buffer.role = ParameterRole::buffer;
  buffer.dtype = dtype;
  buffer.trainable = false;
  buffer.persistent = persistent;
  buffer.value = var.id();
  graph_.buffers.push_back(std::move(buffer));
  return var;
}

void GraphBuilder::keep(const Var& x) {
  x.slot_->permanent = true;
  graph_.outputs.push_back(x.id());
}

Var GraphBuilder::input(std::string name, const Dims& shape, std::optional<DType> dtype) {
  Var var = make_value(true);
  graph_.inputs.push_back({std::move(name), shape, dtype, var.id(), false});
  return var;
}

Var GraphBuilder::received(std::string name, const Dims& shape) {
  Var var = input(std::move(name), shape, std::nullopt);
  graph_.inputs.back().requires_grad = true;
  return var;
}

void GraphBuilder::end_chunk(const Var& sent) {
  HEADROOM_CHECK(open_regions_.empty(), "a region is still open");
  GraphChunk chunk;
  chunk.begin = graph_.chunks_before.empty() ? 0 : graph_.chunks_before.back().end;
  chunk.end = static_cast<uint32_t>(graph_.instructions.size());
  chunk.inputs = std::exchange(graph_.inputs, {});
  chunk.outputs = {sent.id()};
  sent.slot_->permanent = true;
  graph_.chunks_before.push_back(std::move(chunk));
}

Var GraphBuilder::existing(ValueId value) { return Var(new Var::Slot{1, value, this, true}); }

Var GraphBuilder::new_parameter_value() { return make_value(true); }

ValueId GraphBuilder::release(Var var) {
  HEADROOM_CHECK(var.slot_ && var.slot_->refs == 1, "a variable that is released has copies");
  var.slot_->permanent = true;
  return var.id();
}

// Module ids follow regions one to one, after the empty name.
ModuleId GraphBuilder::open_module() const {
  return open_regions_.empty() ? 0 : open_regions_.back() + 1;
}

void GraphBuilder::copy(const Operation& operation, std::vector<ValueId>& names) {
  Operation& copied = graph_.operations.emplace_back(operation);
  copied.module = open_module();
  for (ValueId& id : copied.inputs) {
    if (id != kNoValue) id = names[id];
  }
  for (ValueId& id : copied.outputs) {
    names[id] = graph_.value_count;
    id = graph_.value_count++;
  }
  instruct(InstructionKind::operation, graph_.operations.size() - 1);
}

uint32_t GraphBuilder::enter(RegionKind kind, std::string name,
                             std::initializer_list<const Var*> inputs) {
  Region region;
  region.kind = kind;
  region.name = std::move(name);
  for (const Var* input : inputs) region.inputs.push_back(input->id());
  return enter(std::move(region));
}

uint32_t GraphBuilder::enter(Region region) {
  const auto id = static_cast<uint32_t>(graph_.regions.size());
  region.begin = static_cast<uint32_t>(graph_.instructions.size());
  graph_.modules.push_back(region.name);
  graph_.regions.push_back(std::move(region));
  open_regions_.push_back(id);
  instruct(InstructionKind::enter, id);
  return id;
}

void GraphBuilder::leave(uint32_t region, std::initializer_list<const Var*> outputs) {
  for (const Var* output : outputs) {
    if (*output) graph_.regions[region].outputs.push_back(output->id());
  }
  leave(region);
}

void GraphBuilder::leave(uint32_t region) {
  HEADROOM_CHECK(!open_regions_.empty() && open_regions_.back() == region, "regions must nest");
  open_regions_.pop_back();
  instruct(InstructionKind::leave, region);
  graph_.regions[region].end = static_cast<uint32_t>(graph_.instructions.size());
}

Var GraphBuilder::apply(OpKind kind, std::vector<Var> inputs, Attributes attributes) {
  Var result;
  add_operation(kind, std::move(inputs), {&result, 1}, std::move(attributes));
  return result;
}

std::vector<Var> GraphBuilder::apply_many(OpKind kind, std::vector<Var> inputs, size_t outputs,
                                          Attributes attributes) {
  std::vector<Var> results(outputs);
  add_operation(kind, std::move(inputs), results, std::move(attributes));
  return results;
}

void GraphBuilder::add_operation(OpKind kind, std::vector<Var> inputs, std::span<Var> outputs,
                                 Attributes attributes) {
  Operation& operation = graph_.operations.emplace_back();
  operation.kind = kind;
  operation.module = open_module();
  for (const Var& input : inputs) operation.inputs.push_back(input.id());
  operation.attributes = std::move(attributes);
  for (Var& output : outputs) {
    output = make_value(false);
    operation.outputs.push_back(output.id());
  }
  instruct(InstructionKind::operation, graph_.operations.size() - 1);
  inputs.clear();
}

void GraphBuilder::set_outputs(const Var& loss, const Var& logits,
                               std::initializer_list<const Var*> others) {
  graph_.loss = loss.id();
  graph_.logits = logits.id();
  for (const Var* output : others) graph_.outputs.push_back(output->id());
  // Outputs outlive the forward function; whoever runs the graph drops them.
  if (loss) loss.slot_->permanent = true;
  if (logits) logits.slot_->permanent = true;
  for (const Var* output : others) output->slot_->permanent = true;
}

Graph GraphBuilder::finish() {
  HEADROOM_CHECK(open_regions_.empty(), "a region is still open");
  finished_ = true;
  return std::move(graph_);
}

}  // namespace headroom::model
