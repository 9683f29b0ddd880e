#include "model/traced_graph.h"

#include <set>
#include <unordered_map>
#include <unordered_set>

#include "model/traced_operation.h"
#include "model/traced_operators.h"
#include "model/traced_regions.h"
#include "model/traced_values.h"

namespace headroom::model {

namespace {

using text::JsonView;

constexpr size_t kNameMax = 1024;
constexpr int64_t kKeywordMax = 100'000'000;

class Reader {
 public:
  explicit Reader(const JsonView& json) : json_(json) {}

  Result<TracedGraph> read() {
    HEADROOM_ASSIGN(const std::string schema, json_.get_string("schema"));
    if (schema != "headroom.graph/1") {
      return json_.error_at("schema", "expected \"headroom.graph/1\"");
    }
    HEADROOM_TRY(read_origin());
    HEADROOM_TRY(values_.read(json_));
    result_.graph.value_count = static_cast<uint32_t>(values_.size());
    HEADROOM_TRY(read_parameters());
    HEADROOM_TRY(read_buffers_and_inputs());
    HEADROOM_TRY(read_modules());
    HEADROOM_TRY(read_operators());
    HEADROOM_ASSIGN(const auto forward_only, json_.optional_bool("forward_only"));
    HEADROOM_TRY(forward_only.value_or(false) ? read_outputs() : read_loss());
    return finish();
  }

 private:
  // What was traced, by which versions, and what the tracer took for granted.
  Result<void> read_origin() {
    HEADROOM_ASSIGN(result_.source, json_.get_string("source"));
    HEADROOM_ASSIGN(const auto versions, json_.optional_object("versions"));
    if (versions) {
      HEADROOM_ASSIGN(result_.torch, versions->optional_string("torch"));
      HEADROOM_ASSIGN(result_.transformers, versions->optional_string("transformers"));
    }
    HEADROOM_ASSIGN(const auto keywords, json_.optional_object("keywords"));
    if (keywords) {
      HEADROOM_ASSIGN(result_.batch, keywords->optional_int("batch", 1, kKeywordMax));
      HEADROOM_ASSIGN(result_.sequence, keywords->optional_int("seq", 1, kKeywordMax));
    }
    HEADROOM_ASSIGN(const auto answers, json_.optional_array("data_answers", kTraceListMax));
    if (!answers) return {};
    for (const JsonView& view : *answers) {
      HEADROOM_ASSIGN(const std::string asked, view.get_string("asked"));
      HEADROOM_ASSIGN(const std::string module, view.get_string("module"));
      HEADROOM_ASSIGN(const std::string answer, view.get_string("answer"));
      result_.data_answers.push_back(asked + " in module '" + module + "' is taken to be " +
                                     answer);
    }
    return {};
  }

  Parameter make_parameter(std::string name, ValueId id) const {
    Parameter parameter;
    parameter.name = std::move(name);
    parameter.shape = values_[id].tensor.sizes;
    parameter.dtype = values_[id].tensor.dtype;
    parameter.value = id;
    return parameter;
  }

  Result<void> read_parameters() {
    std::vector<Parameter>& all = result_.graph.parameters;
    HEADROOM_ASSIGN(const auto parameters, json_.get_array("parameters", kTraceCountMax));
    for (const JsonView& view : parameters) {
      HEADROOM_ASSIGN(std::string name, view.get_string("name"));
      HEADROOM_ASSIGN(const ValueId id, values_.get_id(view, "value"));
      HEADROOM_ASSIGN(const bool trainable, view.get_bool("trainable"));
      Parameter parameter = make_parameter(std::move(name), id);
      parameter.trainable = trainable && op::is_floating(*parameter.dtype);
      const auto [first, is_new] = parameters_.try_emplace(id, static_cast<uint32_t>(all.size()));
      if (!is_new) parameter.tied_to = first->second;
      values_.keep(id, trainable);
      all.push_back(std::move(parameter));
    }
    return {};
  }

  Result<void> read_buffers_and_inputs() {
    HEADROOM_ASSIGN(const auto buffers, json_.get_array("buffers", kTraceCountMax));
    for (const JsonView& view : buffers) {
      HEADROOM_ASSIGN(std::string name, view.get_string("name"));
      HEADROOM_ASSIGN(const ValueId id, values_.get_id(view, "value"));
      if (!values_[id].on_device || values_[id].permanent) continue;
      values_.keep(id, false);
      Parameter buffer = make_parameter(std::move(name), id);
      buffer.role = ParameterRole::buffer;
      buffer.trainable = false;
      result_.graph.buffers.push_back(std::move(buffer));
    }
    HEADROOM_ASSIGN(const auto inputs, json_.get_array("inputs", kTraceListMax));
    for (const JsonView& view : inputs) {
      HEADROOM_ASSIGN(std::string name, view.get_string("name"));
      HEADROOM_ASSIGN(const ValueId id, values_.get_id(view, "value"));
      if (!values_[id].on_device || values_[id].permanent) continue;
      values_.keep(id, false);
      result_.graph.inputs.push_back(
          {std::move(name), values_[id].tensor.sizes, values_[id].tensor.dtype, id});
    }
    return {};
  }

  Result<void> read_modules() {
    HEADROOM_ASSIGN(const auto modules, json_.optional_array("modules", kTraceCountMax));
    if (!modules) return {};
    for (const JsonView& view : *modules) {
      TracedModule module;
      HEADROOM_ASSIGN(module.name, view.get_string("name"));
      HEADROOM_ASSIGN(module.kind, view.get_string("class"));
      if (module.name.size() > kNameMax) {
        return view.error_at("name", "a name that long is no name");
      }
      parts_.modules.push_back(std::move(module));
    }
    return {};
  }

  // Values that more than one operator writes.
  Result<void> find_rewritten(const std::vector<JsonView>& operators) {
    std::vector<bool> written(values_.size());
    for (ValueId id = 0; id < values_.size(); ++id) written[id] = values_[id].permanent;
    for (const JsonView& view : operators) {
      HEADROOM_ASSIGN(const auto outputs, view.get_array("outputs", kTraceListMax));
      for (const JsonView& output : outputs) {
        HEADROOM_ASSIGN(const ValueId id, values_.to_id(output));
        if (written[id]) values_[id].rewritten = true;
        written[id] = true;
      }
    }
    return {};
  }

  Result<void> read_operators() {
    HEADROOM_ASSIGN(const auto operators, json_.get_array("operators", kTraceCountMax));
    HEADROOM_TRY(find_rewritten(operators));
    OperationReader reader(values_, result_.graph);
    for (const JsonView& view : operators) {
      HEADROOM_ASSIGN(TracedOperation traced, reader.read(view));
      TracedStep step;
      step.module = std::move(traced.module);
      Operation& operation = traced.operation;
      if (!operation.outputs.empty() || !operation.inputs.empty()) {
        step.operation = static_cast<uint32_t>(result_.graph.operations.size());
        name_operation(operation, traced.recording);
        operation.recording = std::make_shared<const Recording>(std::move(traced.recording));
        result_.graph.operations.push_back(std::move(operation));
      }
      HEADROOM_ASSIGN(const auto drops, view.get_array("drops", kTraceCountMax));
      for (const JsonView& drop : drops) {
        HEADROOM_ASSIGN(const ValueId id, values_.to_id(drop));
        if (values_.drop(id)) step.drops.push_back(id);
      }
      parts_.steps.push_back(std::move(step));
    }
    return {};
  }

  void name_operation(Operation& operation, Recording& recording) {
    const KnownOperator known = known_operator(recording.name);
    operation.kind = known.kind;
    // One that leaves nothing on the device (a number for Python) is known well enough.
    const bool is_unknown = known.kind == OpKind::opaque && !operation.outputs.empty();
    if (is_unknown && unknown_.insert(recording.name).second) {
      result_.unknown_operators.push_back(recording.name);
    }
    if (!known.factor.empty() && !operation.inputs.empty()) {
      const bool adds_a_row = values_[operation.inputs[0]].tensor.sizes.size() == 1;
      recording.through_lt = known.factor != "self" && adds_a_row;
      note_head(operation);
    }
    if (known.kind == OpKind::embedding) set_role(operation, ParameterRole::embedding);
    if (known.kind == OpKind::layer_norm || known.kind == OpKind::rms_norm) {
      set_role(operation, ParameterRole::norm);
    }
    if (known.starts_loss && parts_.loss == kNoOperation) {
      parts_.loss = static_cast<uint32_t>(parts_.steps.size());
    }
  }

  void set_role(const Operation& operation, ParameterRole role) {
    for (const ValueId id : operation.inputs) {
      const auto found = parameters_.find(id);
      if (found != parameters_.end()) result_.graph.parameters[found->second].role = role;
    }
  }

  // The last product of a parameter before the loss makes the logits.
  void note_head(const Operation& operation) {
    if (parts_.loss != kNoOperation) return;
    for (const ValueId id : operation.inputs) {
      const ValueId holder = values_.holder(id);
      if (holder == kNoValue || !values_[holder].permanent) continue;
      if (!values_[holder].requires_grad || values_[holder].tensor.sizes.size() < 2) continue;
      parts_.lm_head = static_cast<uint32_t>(parts_.steps.size());
      head_ = holder;
    }
  }

  Result<void> read_loss() {
    HEADROOM_ASSIGN(const auto outputs, json_.get_array("outputs", kTraceListMax));
    if (outputs.size() != 1) {
      return json_.error_at("outputs", "expected one output, the loss",
                            "trace without --forward-only");
    }
    HEADROOM_ASSIGN(const ValueId id, values_.to_id(outputs[0]));
    const TracedValue& loss = values_[id];
    if (!loss.on_device || !loss.alive || loss.permanent || !loss.has_node || !loss.requires_grad ||
        op::product(loss.tensor.sizes) != 1) {
      return outputs[0].error("the loss is not a scalar that has a gradient");
    }
    result_.graph.loss = id;
    result_.graph.outputs.push_back(id);
    return {};
  }

  // Of a forward pass alone: what is there at its end and was made in it.
  Result<void> read_outputs() {
    HEADROOM_ASSIGN(const auto outputs, json_.get_array("outputs", kTraceListMax));
    for (const JsonView& view : outputs) {
      HEADROOM_ASSIGN(const ValueId id, values_.to_id(view));
      const TracedValue& output = values_[id];
      if (output.on_device && output.alive && !output.permanent) {
        result_.graph.outputs.push_back(id);
      }
    }
    return {};
  }

  TracedGraph finish() {
    Graph& graph = result_.graph;
    std::set<ValueId> read;
    for (const Operation& operation : graph.operations) {
      read.insert(operation.inputs.begin(), operation.inputs.end());
    }
    for (Parameter& parameter : graph.parameters) {
      // A matrix that is an embedding, too, is counted as one.
      const bool is_head = parts_.loss != kNoOperation && parameter.value == head_ &&
                           parameter.role != ParameterRole::embedding;
      if (parameter.tied_to) parameter.role = graph.parameters[*parameter.tied_to].role;
      if (is_head) parameter.role = ParameterRole::lm_head;
      if (parameter.role == ParameterRole::other) {
        parameter.role = parameter.name.ends_with("bias") ? ParameterRole::bias
                         // What nothing reads may be a table as well.
                         : parameter.shape.size() >= 2 && read.contains(parameter.value)
                             ? ParameterRole::linear
                             : ParameterRole::other;
      }
    }
    if (parts_.loss == kNoOperation) parts_.lm_head = kNoOperation;
    for (ValueId id = 0; id < values_.size(); ++id) {
      parts_.permanent.push_back(values_[id].permanent);
    }
    arrange(parts_, graph);
    return std::move(result_);
  }

  const JsonView& json_;
  TracedGraph result_;
  TracedParts parts_;
  TracedValues values_;
  std::unordered_map<ValueId, uint32_t> parameters_;  // the first one with this value
  std::unordered_set<std::string> unknown_;
  ValueId head_ = kNoValue;
};

}  // namespace

Result<TracedGraph> read_traced_graph(const JsonView& json) { return Reader(json).read(); }

}  // namespace headroom::model
