#include "model/traced_graph.h"

#include <algorithm>
#include <map>
#include <set>

#include "model/traced_operators.h"
#include "model/traced_regions.h"
#include "operator/eager.h"

namespace headroom::model {

namespace {

using text::Json;
using text::JsonView;

constexpr int64_t kSizeMax = int64_t{1} << 40;
constexpr int64_t kBytesMax = op::kTensorBytesMax;
constexpr size_t kCountMax = 4'000'000;
constexpr size_t kListMax = 65'536;

struct Value {
  RecordedTensor tensor;
  bool on_device = false;
  uint32_t storage = 0;
  bool alive = false;
  bool permanent = false;
  bool rewritten = false;      // an operator writes to it in place
  bool requires_grad = false;  // so far
  bool has_node = false;
};

class Reader {
 public:
  explicit Reader(const JsonView& json) : json_(json) {}

  Result<TracedGraph> read() {
    HEADROOM_ASSIGN(const std::string schema, json_.get_string("schema"));
    if (schema != "headroom.graph/1") {
      return json_.error_at("schema", "expected \"headroom.graph/1\"");
    }
    HEADROOM_ASSIGN(result_.source, json_.get_string("source"));
    HEADROOM_TRY(read_storages());
    HEADROOM_TRY(read_values());
    HEADROOM_TRY(read_module_values());
    HEADROOM_TRY(read_modules());
    HEADROOM_TRY(read_data_answers());
    HEADROOM_ASSIGN(const auto operators, json_.get_array("operators", kCountMax));
    HEADROOM_TRY(find_rewritten(operators));
    for (const JsonView& view : operators) HEADROOM_TRY(read_operator(view));
    HEADROOM_TRY(read_loss());
    return finish();
  }

 private:
  Result<Dims> read_dims(const JsonView& view, const char* key) {
    HEADROOM_ASSIGN(const auto items, view.get_array(key, op::kDimsMax));
    Dims dims;
    for (const JsonView& item : items) {
      HEADROOM_ASSIGN(const int64_t size, item.to_int(0, kSizeMax));
      dims.push_back(size);
    }
    return dims;
  }

  // "shape", "strides" and "dtype".
  Result<RecordedTensor> read_tensor(const JsonView& view) {
    RecordedTensor tensor;
    HEADROOM_ASSIGN(tensor.sizes, read_dims(view, "shape"));
    HEADROOM_ASSIGN(tensor.strides, read_dims(view, "strides"));
    HEADROOM_ASSIGN(const std::string dtype, view.get_string("dtype"));
    if (tensor.sizes.size() != tensor.strides.size()) {
      return view.error_at("strides", "as many strides as sizes are expected");
    }
    // Only sizes count here, so the unsigned types (a random state is uint64) are their signed ones.
    const bool is_unsigned = dtype == "uint16" || dtype == "uint32" || dtype == "uint64";
    const auto parsed = op::parse_dtype(is_unsigned ? dtype.substr(1) : dtype);
    if (!parsed) return view.error_at("dtype", "unknown element type '" + dtype + "'");
    tensor.dtype = *parsed;
    if (op::product(tensor.sizes) > kBytesMax / op::element_size(tensor.dtype)) {
      return view.error_at("shape", "a tensor too large for any machine");
    }
    return tensor;
  }

  Result<void> read_storages() {
    HEADROOM_ASSIGN(const auto storages, json_.get_array("storages", kCountMax));
    for (const JsonView& view : storages) {
      HEADROOM_ASSIGN(const int64_t bytes, view.get_int("bytes", 0, kBytesMax));
      storages_.push_back(bytes);
    }
    holders_.assign(storages_.size(), kNoValue);
    return {};
  }

  Result<void> read_values() {
    HEADROOM_ASSIGN(const auto values, json_.get_array("values", kCountMax));
    for (const JsonView& view : values) {
      Value value;
      HEADROOM_ASSIGN(value.tensor, read_tensor(view));
      HEADROOM_ASSIGN(const int64_t storage, view.get_int("storage", 0, last(storages_)));
      HEADROOM_ASSIGN(const std::string device, view.get_string("device"));
      value.storage = static_cast<uint32_t>(storage);
      value.on_device = device.starts_with("cuda") && device.size() == 4;
      values_.push_back(value);
    }
    result_.graph.value_count = static_cast<uint32_t>(values_.size());
    return {};
  }

  template <typename T>
  static int64_t last(const std::vector<T>& list) {
    return static_cast<int64_t>(list.size()) - 1;
  }

  Result<ValueId> to_id(const JsonView& view) {
    HEADROOM_ASSIGN(const int64_t id, view.to_int(0, last(values_)));
    return static_cast<ValueId>(id);
  }
  Result<ValueId> get_id(const JsonView& view, const char* key) {
    HEADROOM_ASSIGN(const int64_t id, view.get_int(key, 0, last(values_)));
    return static_cast<ValueId>(id);
  }

  void make_permanent(ValueId id, bool requires_grad) {
    Value& value = values_[id];
    value.alive = value.permanent = true;
    value.requires_grad = requires_grad && op::is_floating(value.tensor.dtype);
    if (holders_[value.storage] == kNoValue) holders_[value.storage] = id;
  }

  Parameter make_parameter(std::string name, ValueId id) const {
    Parameter parameter;
    parameter.name = std::move(name);
    parameter.shape = values_[id].tensor.sizes;
    parameter.dtype = values_[id].tensor.dtype;
    parameter.value = id;
    return parameter;
  }

  Result<void> read_module_values() {
    Graph& graph = result_.graph;
    HEADROOM_ASSIGN(const auto parameters, json_.get_array("parameters", kCountMax));
    for (const JsonView& view : parameters) {
      HEADROOM_ASSIGN(std::string name, view.get_string("name"));
      HEADROOM_ASSIGN(const ValueId id, get_id(view, "value"));
      HEADROOM_ASSIGN(const bool trainable, view.get_bool("trainable"));
      Parameter parameter = make_parameter(std::move(name), id);
      parameter.trainable = trainable && op::is_floating(*parameter.dtype);
      for (uint32_t i = 0; i < graph.parameters.size() && values_[id].permanent; ++i) {
        if (graph.parameters[i].value == id && !parameter.tied_to) parameter.tied_to = i;
      }
      make_permanent(id, trainable);
      graph.parameters.push_back(std::move(parameter));
    }
    HEADROOM_ASSIGN(const auto buffers, json_.get_array("buffers", kCountMax));
    for (const JsonView& view : buffers) {
      HEADROOM_ASSIGN(std::string name, view.get_string("name"));
      HEADROOM_ASSIGN(const ValueId id, get_id(view, "value"));
      if (values_[id].on_device && !values_[id].permanent) add_buffer(std::move(name), id);
    }
    HEADROOM_ASSIGN(const auto inputs, json_.get_array("inputs", kListMax));
    for (const JsonView& view : inputs) {
      HEADROOM_ASSIGN(std::string name, view.get_string("name"));
      HEADROOM_ASSIGN(const ValueId id, get_id(view, "value"));
      if (!values_[id].on_device || values_[id].permanent) continue;
      make_permanent(id, false);
      graph.inputs.push_back(
          {std::move(name), values_[id].tensor.sizes, values_[id].tensor.dtype, id});
    }
    return {};
  }

  void add_buffer(std::string name, ValueId id) {
    make_permanent(id, false);
    Parameter buffer = make_parameter(std::move(name), id);
    buffer.role = ParameterRole::buffer;
    buffer.trainable = false;
    result_.graph.buffers.push_back(std::move(buffer));
  }

  Result<void> read_modules() {
    HEADROOM_ASSIGN(const auto modules, json_.optional_array("modules", kCountMax));
    if (!modules) return {};
    for (const JsonView& view : *modules) {
      TracedModule module;
      HEADROOM_ASSIGN(module.name, view.get_string("name"));
      HEADROOM_ASSIGN(module.kind, view.get_string("class"));
      parts_.modules.push_back(std::move(module));
    }
    return {};
  }

  Result<void> read_data_answers() {
    HEADROOM_ASSIGN(const auto answers, json_.optional_array("data_answers", kListMax));
    if (!answers) return {};
    for (const JsonView& view : *answers) {
      HEADROOM_ASSIGN(const std::string asked, view.get_string("asked"));
      HEADROOM_ASSIGN(const std::string module, view.get_string("module"));
      HEADROOM_ASSIGN(const std::string answer, view.get_string("answer"));
      result_.data_answers.push_back(asked + " in module '" + module + "' is taken to be " + answer);
    }
    return {};
  }

  // Values that more than one operator writes.
  Result<void> find_rewritten(const std::vector<JsonView>& operators) {
    std::vector<bool> written(values_.size());
    for (size_t i = 0; i < values_.size(); ++i) written[i] = values_[i].permanent;
    for (const JsonView& view : operators) {
      HEADROOM_ASSIGN(const auto outputs, view.get_array("outputs", kListMax));
      for (const JsonView& output : outputs) {
        HEADROOM_ASSIGN(const ValueId id, to_id(output));
        if (written[id]) values_[id].rewritten = true;
        written[id] = true;
      }
    }
    return {};
  }

  // --- one operator ---------------------------------------------------------------------------

  struct Building {
    Operation operation;
    Recording recording;
    std::vector<ValueId> listed;        // the trace's outputs
    std::vector<int32_t> output_index;  // of each listed one among the operation's
  };

  // The position of a value among the inputs, taken in where it is not yet one. A value that nobody
  // made was there before the step: a constant of the user's code.
  int32_t input_index(Building& b, ValueId id) {
    const auto found = std::ranges::find(b.operation.inputs, id);
    if (found != b.operation.inputs.end()) {
      return static_cast<int32_t>(found - b.operation.inputs.begin());
    }
    if (!values_[id].alive) {
      add_buffer("constant " + std::to_string(result_.graph.buffers.size()), id);
    }
    b.operation.inputs.push_back(id);
    return static_cast<int32_t>(b.operation.inputs.size()) - 1;
  }

  // Arguments: {"value": id} anywhere in lists of lists.
  Result<void> collect(const JsonView& place, const Json& json, int depth, Building& b) {
    if (json.is_array() && depth < 4) {
      for (const Json& item : json.items()) HEADROOM_TRY(collect(place, item, depth + 1, b));
    }
    const Json* value = json.is_object() ? json.find("value") : nullptr;
    if (value == nullptr) return {};
    if (!value->is_integer() || value->as_int() < 0 || value->as_int() > last(values_)) {
      return place.error_at("args", "an argument is no value of this file");
    }
    const auto id = static_cast<ValueId>(value->as_int());
    if (values_[id].on_device) input_index(b, id);
    return {};
  }

  Result<void> read_outputs(const JsonView& view, Building& b) {
    HEADROOM_ASSIGN(const auto outputs, view.get_array("outputs", kListMax));
    for (const JsonView& item : outputs) {
      HEADROOM_ASSIGN(const ValueId id, to_id(item));
      b.listed.push_back(id);
      if (!values_[id].on_device) {
        b.output_index.push_back(kNowhere);
        continue;
      }
      b.output_index.push_back(static_cast<int32_t>(b.operation.outputs.size()));
      b.recording.outputs.push_back(describe_output(id, b));
      b.operation.outputs.push_back(id);
    }
    for (const ValueId id : b.operation.outputs) {
      values_[id].alive = true;
      const ValueId holder = holders_[values_[id].storage];
      if (holder == kNoValue || !values_[holder].alive) holders_[values_[id].storage] = id;
    }
    return {};
  }

  RecordedOutput describe_output(ValueId id, Building& b) {
    using Kind = RecordedOutput::Kind;
    const Value& value = values_[id];
    RecordedOutput output;
    output.tensor = value.tensor;
    output.bytes = storages_[value.storage];
    if (value.alive) {
      output.kind = Kind::same_as_input;
      output.source = input_index(b, id);
      return output;
    }
    for (size_t i = 0; i < b.operation.outputs.size(); ++i) {
      if (values_[b.operation.outputs[i]].storage != value.storage) continue;
      output.kind = Kind::view_of_output;
      output.source = static_cast<int32_t>(i);
      return output;
    }
    for (const ValueId input : b.operation.inputs) {
      if (values_[input].storage != value.storage) continue;
      output.kind = Kind::view_of_input;
      output.source = input_index(b, input);
      return output;
    }
    const ValueId holder = holders_[value.storage];
    if (holder != kNoValue && values_[holder].alive) {
      output.kind = Kind::view_of_input;
      output.source = input_index(b, holder);
    }
    return output;
  }

  Result<void> read_node(const JsonView& view, Building& b) {
    if (!view.has("node")) return {};
    HEADROOM_ASSIGN(const auto edges, view.get_array("edges", kListMax));
    HEADROOM_ASSIGN(const auto node_outputs, view.get_array("node_outputs", kListMax));
    HEADROOM_ASSIGN(const auto saves, view.get_array("saves", kListMax));
    bool wants_gradient = false;
    for (const JsonView& edge : edges) {
      if (edge.json().is_null()) {
        b.recording.edges.push_back(kNowhere);
        continue;
      }
      HEADROOM_ASSIGN(const ValueId id, to_id(edge));
      if (!values_[id].on_device) return edge.error("a gradient that leaves the device");
      b.recording.edges.push_back(input_index(b, id));
      wants_gradient = wants_gradient || values_[id].requires_grad;
    }
    for (const JsonView& output : node_outputs) {
      if (output.json().is_null()) {
        b.recording.node_outputs.push_back(kNowhere);
        continue;
      }
      HEADROOM_ASSIGN(const int64_t position, output.to_int(0, last(b.output_index)));
      const int32_t index = b.output_index[static_cast<size_t>(position)];
      b.recording.node_outputs.push_back(index);
      if (index == kNowhere) continue;
      Value& value = values_[b.listed[static_cast<size_t>(position)]];
      if (value.permanent && wants_gradient) {
        return output.error("an operator with a gradient writes into a parameter or an input");
      }
      value.requires_grad = wants_gradient && op::is_floating(value.tensor.dtype);
      value.has_node = wants_gradient;
    }
    b.recording.differentiable = true;
    for (const JsonView& save : saves) HEADROOM_TRY(read_save(save, b));
    return read_backward(view, b);
  }

  Result<void> read_save(const JsonView& save, Building& b) {
    HEADROOM_ASSIGN(const ValueId id, to_id(save));
    if (!values_[id].on_device) return {};
    const auto add = [&](int32_t input, int32_t output, ValueId saved) {
      b.recording.saves.push_back({input, output, values_[saved].rewritten});
    };
    const auto& outputs = b.operation.outputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] != id) continue;
      add(kNowhere, static_cast<int32_t>(i), id);
      return {};
    }
    if (values_[id].alive) {
      add(input_index(b, id), kNowhere, id);
      return {};
    }
    // An output is saved as a tensor of its own on the same storage.
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (values_[outputs[i]].storage != values_[id].storage) continue;
      add(kNowhere, static_cast<int32_t>(i), outputs[i]);
      return {};
    }
    const ValueId holder = holders_[values_[id].storage];
    if (holder != kNoValue && values_[holder].alive) add(input_index(b, holder), kNowhere, holder);
    return {};
  }

  Result<void> read_backward(const JsonView& view, Building& b) {
    HEADROOM_ASSIGN(const auto backward, view.optional_object("backward"));
    if (!backward) return {};
    HEADROOM_ASSIGN(const auto blocks, backward->get_array("blocks", kListMax));
    int64_t made = 0;
    for (const JsonView& change : blocks) {
      RecordedBlock block;
      if (change.has("free")) {
        HEADROOM_ASSIGN(const int64_t number, change.get_int("free", 0, made - 1));
        block.free = static_cast<int32_t>(number);
      } else {
        HEADROOM_ASSIGN(block.bytes, change.get_int("bytes", 0, kBytesMax));
        ++made;
      }
      b.recording.blocks.push_back(block);
    }
    HEADROOM_ASSIGN(const auto results, backward->get_array("results", kListMax));
    if (results.size() > b.recording.edges.size()) {
      return backward->error_at("results", "more gradients than inputs of the node");
    }
    for (const JsonView& result : results) HEADROOM_TRY(read_gradient(result, made, b));
    return {};
  }

  Result<void> read_gradient(const JsonView& view, int64_t blocks, Building& b) {
    using Kind = RecordedGradient::Kind;
    RecordedGradient gradient;
    const size_t number = b.recording.gradients.size();
    const int32_t edge = b.recording.edges[number];
    if (view.json().is_null() || edge == kNowhere) {
      b.recording.gradients.push_back(gradient);
      return {};
    }
    const Value& wanted = values_[b.operation.inputs[static_cast<size_t>(edge)]];
    const RecordedTensor* type = &gradient.tensor;
    const auto source = [&](const char* key, int64_t count) -> Result<void> {
      HEADROOM_ASSIGN(const int64_t index, view.get_int(key, 0, count - 1));
      gradient.source = static_cast<int32_t>(index);
      return {};
    };
    const auto& outputs = b.recording.node_outputs;
    if (view.has("same")) {
      gradient.kind = Kind::same_as_gradient;
      HEADROOM_TRY(source("same", std::ssize(outputs)));
      const int32_t output = outputs[static_cast<size_t>(gradient.source)];
      if (output == kNowhere) return view.error_at("same", "there is no such gradient");
      type = &b.recording.outputs[static_cast<size_t>(output)].tensor;
    } else if (view.has("result")) {
      gradient.kind = Kind::same_as_result;
      HEADROOM_TRY(source("result", static_cast<int64_t>(number)));
      const auto index = static_cast<size_t>(gradient.source);
      const int32_t other = b.recording.edges[index];
      if (other == kNowhere) return view.error_at("result", "there is no such gradient");
      type = &values_[b.operation.inputs[static_cast<size_t>(other)]].tensor;
    } else {
      HEADROOM_ASSIGN(gradient.tensor, read_tensor(view));
      HEADROOM_ASSIGN(gradient.is_view, view.get_bool("view"));
      if (view.has("gradient")) {
        gradient.kind = Kind::view_of_gradient;
        HEADROOM_TRY(source("gradient", std::ssize(outputs)));
      } else if (view.has("block")) {
        gradient.kind = Kind::block;
        HEADROOM_TRY(source("block", blocks));
        if (is_freed(b.recording, gradient.source)) {
          return view.error_at("block", "the block is no longer there");
        }
      } else {
        // A tensor that was kept, or made elsewhere: it takes nothing new.
        gradient.kind = Kind::none;
        b.recording.gradients.push_back(gradient);
        return {};
      }
    }
    if (!(type->sizes == wanted.tensor.sizes) || type->dtype != wanted.tensor.dtype) {
      return view.error("a gradient of another shape or type than what it belongs to");
    }
    b.recording.gradients.push_back(gradient);
    return {};
  }

  static bool is_freed(const Recording& recording, int32_t block) {
    return std::ranges::any_of(recording.blocks,
                               [&](const RecordedBlock& change) { return change.free == block; });
  }

  Result<void> read_operator(const JsonView& view) {
    Building b;
    HEADROOM_ASSIGN(b.recording.name, view.get_string("op"));
    TracedStep step;
    HEADROOM_ASSIGN(step.module, view.get_string("module"));
    HEADROOM_ASSIGN(const JsonView args, view.get_object("args"));
    for (const auto& [name, value] : args.json().members()) {
      HEADROOM_TRY(collect(view, value, 0, b));
    }
    HEADROOM_TRY(read_outputs(view, b));
    HEADROOM_TRY(read_node(view, b));
    if (!b.operation.outputs.empty() || !b.operation.inputs.empty()) {
      step.operation = static_cast<uint32_t>(result_.graph.operations.size());
      name_operation(b);
      b.operation.recording = std::make_shared<const Recording>(std::move(b.recording));
      result_.graph.operations.push_back(std::move(b.operation));
    }
    HEADROOM_ASSIGN(const auto drops, view.get_array("drops", kCountMax));
    for (const JsonView& drop : drops) {
      HEADROOM_ASSIGN(const ValueId id, to_id(drop));
      Value& value = values_[id];
      if (!value.alive || value.permanent) continue;
      value.alive = false;
      move_holder(id);
      step.drops.push_back(id);
    }
    for (const ValueId id : b.listed) live_by_storage_hint(id);
    parts_.steps.push_back(std::move(step));
    return {};
  }

  // A storage is found through any value that lives on it.
  void live_by_storage_hint(ValueId id) {
    if (values_[id].on_device && values_[id].alive) others_[values_[id].storage].insert(id);
  }
  void move_holder(ValueId id) {
    const uint32_t storage = values_[id].storage;
    auto& others = others_[storage];
    others.erase(id);
    if (holders_[storage] == id) holders_[storage] = others.empty() ? kNoValue : *others.begin();
  }

  void name_operation(Building& b) {
    const KnownOperator known = known_operator(b.recording.name);
    b.operation.kind = known.kind;
    const auto input = [&](size_t i) -> const RecordedTensor& {
      return values_[b.operation.inputs[i]].tensor;
    };
    if (known.kind == OpKind::opaque) {
      if (std::ranges::find(result_.unknown_operators, b.recording.name) ==
          result_.unknown_operators.end()) {
        result_.unknown_operators.push_back(b.recording.name);
      }
    }
    const size_t count = b.operation.inputs.size();
    if (known.product && count > known.first_factor + 1 && !b.recording.outputs.empty()) {
      const Dims& factor = input(known.first_factor).sizes;
      const double depth = factor.empty() ? 1 : static_cast<double>(factor.back());
      b.recording.flops =
          2 * depth * static_cast<double>(op::product(b.recording.outputs[0].tensor.sizes));
      b.recording.through_lt = known.first_factor == 1 && input(0).sizes.size() == 1;
      note_head(b);
    }
    if (known.kind == OpKind::embedding) set_role(b.operation, ParameterRole::embedding);
    if (known.kind == OpKind::layer_norm || known.kind == OpKind::rms_norm) {
      set_role(b.operation, ParameterRole::norm);
    }
    if (known.starts_loss && parts_.loss == kNoOperation) {
      parts_.loss = static_cast<uint32_t>(parts_.steps.size());
    }
  }

  void set_role(const Operation& operation, ParameterRole role) {
    for (const ValueId id : operation.inputs) {
      for (Parameter& parameter : result_.graph.parameters) {
        if (parameter.value == id) parameter.role = role;
      }
    }
  }

  // The last product of a parameter before the loss makes the logits.
  void note_head(const Building& b) {
    if (parts_.loss != kNoOperation) return;
    for (const ValueId id : b.operation.inputs) {
      const ValueId holder = holders_[values_[id].storage];
      if (holder == kNoValue || !values_[holder].permanent) continue;
      if (!values_[holder].requires_grad || values_[holder].tensor.sizes.size() < 2) continue;
      parts_.lm_head = static_cast<uint32_t>(parts_.steps.size());
      head_ = holder;
    }
  }

  Result<void> read_loss() {
    HEADROOM_ASSIGN(const auto outputs, json_.get_array("outputs", kListMax));
    if (outputs.size() != 1) {
      return json_.error_at("outputs", "expected one output, the loss",
                            "trace without --forward-only");
    }
    HEADROOM_ASSIGN(const ValueId id, to_id(outputs[0]));
    const Value& loss = values_[id];
    if (!loss.on_device || !loss.alive || loss.permanent || !loss.has_node ||
        !loss.requires_grad || op::product(loss.tensor.sizes) != 1) {
      return outputs[0].error("the loss is not a scalar that has a gradient");
    }
    result_.graph.loss = id;
    result_.graph.outputs.push_back(id);
    return {};
  }

  Result<TracedGraph> finish() {
    Graph& graph = result_.graph;
    for (Parameter& parameter : graph.parameters) {
      const bool is_head = parts_.loss != kNoOperation && parameter.value == head_;
      if (is_head) parameter.role = ParameterRole::lm_head;
      if (parameter.role == ParameterRole::other) {
        parameter.role = parameter.name.ends_with("bias") ? ParameterRole::bias
                         : parameter.shape.size() >= 2    ? ParameterRole::linear
                                                          : ParameterRole::other;
      }
    }
    if (parts_.loss == kNoOperation) parts_.lm_head = kNoOperation;
    for (const Value& value : values_) parts_.permanent.push_back(value.permanent);
    arrange(parts_, graph);
    return std::move(result_);
  }

  const JsonView& json_;
  TracedGraph result_;
  TracedParts parts_;
  std::vector<int64_t> storages_;
  std::vector<Value> values_;
  std::vector<ValueId> holders_;                 // by storage: a value that lives on it
  std::map<uint32_t, std::set<ValueId>> others_;  // by storage: those that are not permanent
  ValueId head_ = kNoValue;
};

}  // namespace

Result<TracedGraph> read_traced_graph(const JsonView& json) { return Reader(json).read(); }

}  // namespace headroom::model
