#include "model/traced_operation.h"

#include <iterator>

#include "model/traced_work.h"
#include "operator/eager.h"

namespace headroom::model {

namespace {

using text::Json;
using text::JsonView;

constexpr int kListDepth = 4;  // arguments may be lists of lists
constexpr size_t kNameMax = 1024;

// Names end up in labels, and their dots are counted.
Result<std::string> read_name(const JsonView& view, const char* key) {
  HEADROOM_ASSIGN(std::string name, view.get_string(key));
  if (name.size() > kNameMax) return view.error_at(key, "a name that long is no name");
  return name;
}

}  // namespace

Result<TracedOperation> OperationReader::read(const JsonView& view) {
  current_ = {};
  for (Positions* positions : {&inputs_, &outputs_, &input_storages_, &output_storages_}) {
    positions->clear();
  }
  HEADROOM_ASSIGN(current_.recording.name, read_name(view, "op"));
  HEADROOM_ASSIGN(current_.module, read_name(view, "module"));
  HEADROOM_ASSIGN(const JsonView args, view.get_object("args"));
  for (const auto& [name, value] : args.json().members()) HEADROOM_TRY(collect(view, value, 0));
  HEADROOM_TRY(read_outputs(view));
  if (view.has("node")) HEADROOM_TRY(read_node(view));
  Recording& recording = current_.recording;
  if (!recording.outputs.empty()) {
    recording.flops =
        work_of(recording.name, args.json(), values_, recording.outputs[0].tensor.sizes);
  }
  return std::move(current_);
}

// The position of a value among the inputs, taken in where it is not yet one. A value that nobody
// made was there before the step: a constant of the user's code.
int32_t OperationReader::input_index(ValueId id) {
  const int32_t known = inputs_.find(id);
  if (known != kNowhere) return known;
  const TracedValue& value = values_[id];
  if (!value.alive) {
    values_.keep(id, false);
    Parameter constant;
    constant.name = "constant " + std::to_string(graph_.buffers.size());
    constant.shape = value.tensor.sizes;
    constant.dtype = value.tensor.dtype;
    constant.role = ParameterRole::buffer;
    constant.trainable = false;
    constant.value = id;
    graph_.buffers.push_back(std::move(constant));
  }
  const size_t position = current_.operation.inputs.size();
  current_.operation.inputs.push_back(id);
  inputs_.add(id, position);
  input_storages_.add(value.storage, position);
  return static_cast<int32_t>(position);
}

// Arguments: {"value": id} anywhere in lists of lists.
Result<void> OperationReader::collect(const JsonView& place, const Json& json, int depth) {
  if (json.is_array() && depth < kListDepth) {
    for (const Json& item : json.items()) HEADROOM_TRY(collect(place, item, depth + 1));
  }
  const Json* value = json.is_object() ? json.find("value") : nullptr;
  if (value == nullptr) return {};
  const auto count = static_cast<int64_t>(values_.size());
  if (!value->is_integer() || value->as_int() < 0 || value->as_int() >= count) {
    return place.error_at("args", "an argument is no value of this file");
  }
  const auto id = static_cast<ValueId>(value->as_int());
  if (values_[id].on_device) input_index(id);
  return {};
}

Result<void> OperationReader::read_outputs(const JsonView& view) {
  HEADROOM_ASSIGN(const auto outputs, view.get_array("outputs", kTraceListMax));
  for (const JsonView& item : outputs) {
    HEADROOM_ASSIGN(const ValueId id, values_.to_id(item));
    current_.listed.push_back(id);
    if (!values_[id].on_device) {
      current_.output_index.push_back(kNowhere);
      continue;
    }
    const size_t position = current_.operation.outputs.size();
    current_.output_index.push_back(static_cast<int32_t>(position));
    current_.recording.outputs.push_back(describe_output(id));
    current_.operation.outputs.push_back(id);
    outputs_.add(id, position);
    output_storages_.add(values_[id].storage, position);
  }
  for (const ValueId id : current_.operation.outputs) values_.bear(id);
  return {};
}

RecordedOutput OperationReader::describe_output(ValueId id) {
  using Kind = RecordedOutput::Kind;
  const TracedValue& value = values_[id];
  RecordedOutput output;
  output.tensor = value.tensor;
  output.bytes = values_.storage_bytes(id);
  if (value.alive) {
    output.kind = Kind::same_as_input;
    output.source = input_index(id);
    return output;
  }
  output.source = output_storages_.find(value.storage);
  if (output.source != kNowhere) {
    output.kind = Kind::view_of_output;
    return output;
  }
  output.source = input_storages_.find(value.storage);
  if (output.source == kNowhere && values_.holder(id) != kNoValue) {
    output.source = input_index(values_.holder(id));
  }
  if (output.source != kNowhere) output.kind = Kind::view_of_input;
  return output;
}

Result<void> OperationReader::read_node(const JsonView& view) {
  current_.recording.differentiable = true;
  HEADROOM_TRY(read_edges(view));
  HEADROOM_TRY(read_node_outputs(view));
  HEADROOM_ASSIGN(const auto saves, view.get_array("saves", kTraceListMax));
  for (const JsonView& save : saves) HEADROOM_TRY(read_save(save));
  return read_backward(view);
}

Result<void> OperationReader::read_edges(const JsonView& view) {
  wants_gradient_ = false;
  HEADROOM_ASSIGN(const auto edges, view.get_array("edges", kTraceListMax));
  for (const JsonView& edge : edges) {
    if (edge.json().is_null()) {
      current_.recording.edges.push_back(kNowhere);
      continue;
    }
    HEADROOM_ASSIGN(const ValueId id, values_.to_id(edge));
    if (!values_[id].on_device) return edge.error("a gradient that leaves the device");
    if (outputs_.find(id) != kNowhere && inputs_.find(id) == kNowhere) {
      return edge.error("a gradient that an operator owes to its own output");
    }
    current_.recording.edges.push_back(input_index(id));
    wants_gradient_ = wants_gradient_ || values_[id].requires_grad;
  }
  return {};
}

Result<void> OperationReader::read_node_outputs(const JsonView& view) {
  HEADROOM_ASSIGN(const auto outputs, view.get_array("node_outputs", kTraceListMax));
  for (const JsonView& output : outputs) {
    if (output.json().is_null()) {
      current_.recording.node_outputs.push_back(kNowhere);
      continue;
    }
    const auto count = static_cast<int64_t>(current_.output_index.size());
    HEADROOM_ASSIGN(const int64_t position, output.to_int(0, count - 1));
    const int32_t index = current_.output_index[static_cast<size_t>(position)];
    current_.recording.node_outputs.push_back(index);
    if (index == kNowhere) continue;
    TracedValue& value = values_[current_.listed[static_cast<size_t>(position)]];
    if (value.permanent && wants_gradient_) {
      return output.error("an operator with a gradient writes into a parameter or an input");
    }
    value.requires_grad = wants_gradient_ && op::is_floating(value.tensor.dtype);
    value.has_node = wants_gradient_;
  }
  return {};
}

Result<void> OperationReader::read_save(const JsonView& save) {
  HEADROOM_ASSIGN(const ValueId id, values_.to_id(save));
  if (!values_[id].on_device) return {};
  const auto add = [&](int32_t input, int32_t output, ValueId saved) {
    current_.recording.saves.push_back({input, output, values_[saved].rewritten});
  };
  if (const int32_t output = outputs_.find(id); output != kNowhere) {
    add(kNowhere, output, id);
  } else if (values_[id].alive) {
    add(input_index(id), kNowhere, id);
  } else if (const int32_t base = output_storages_.find(values_[id].storage); base != kNowhere) {
    // An output is saved as a tensor of its own on the same storage.
    add(kNowhere, base, current_.operation.outputs[static_cast<size_t>(base)]);
  } else if (const ValueId holder = values_.holder(id); holder != kNoValue) {
    add(input_index(holder), kNowhere, holder);
  }
  return {};
}

Result<void> OperationReader::read_backward(const JsonView& view) {
  HEADROOM_ASSIGN(const auto backward, view.optional_object("backward"));
  if (!backward) return {};
  HEADROOM_TRY(read_blocks(*backward));
  HEADROOM_ASSIGN(const auto results, backward->get_array("results", kTraceListMax));
  if (results.size() > current_.recording.edges.size()) {
    return backward->error_at("results", "more gradients than inputs of the node");
  }
  for (const JsonView& result : results) HEADROOM_TRY(read_gradient(result));
  return {};
}

Result<void> OperationReader::read_blocks(const JsonView& backward) {
  freed_.clear();
  HEADROOM_ASSIGN(const auto blocks, backward.get_array("blocks", kTraceListMax));
  for (const JsonView& change : blocks) {
    RecordedBlock block;
    if (change.has("free")) {
      HEADROOM_ASSIGN(const int64_t number,
                      change.get_int("free", 0, static_cast<int64_t>(freed_.size()) - 1));
      block.free = static_cast<int32_t>(number);
      freed_[static_cast<size_t>(number)] = true;
    } else {
      HEADROOM_ASSIGN(block.bytes, change.get_int("bytes", 0, op::kTensorBytesMax));
      freed_.push_back(false);
    }
    current_.recording.blocks.push_back(block);
  }
  return {};
}

// A gradient that was handed in, or given for another input: its tensor is that one's.
Result<const RecordedTensor*> OperationReader::read_passed_on(const JsonView& view,
                                                              RecordedGradient& gradient) {
  const Recording& recording = current_.recording;
  const bool is_same = view.has("same");
  const char* key = is_same ? "same" : "result";
  const size_t count = is_same ? recording.node_outputs.size() : recording.gradients.size();
  HEADROOM_ASSIGN(const int64_t source, view.get_int(key, 0, static_cast<int64_t>(count) - 1));
  const auto index = static_cast<size_t>(source);
  const int32_t target = is_same ? recording.node_outputs[index] : recording.edges[index];
  if (target == kNowhere) return view.error_at(key, "there is no such gradient");
  const auto at = static_cast<size_t>(target);
  gradient.kind =
      is_same ? RecordedGradient::Kind::same_as_gradient : RecordedGradient::Kind::same_as_result;
  gradient.source = static_cast<int32_t>(source);
  return is_same ? &recording.outputs[at].tensor : &values_[current_.operation.inputs[at]].tensor;
}

// A tensor of its own. One that was kept, or made elsewhere, takes nothing new.
Result<RecordedGradient> OperationReader::read_new_gradient(const JsonView& view) {
  RecordedGradient gradient;
  HEADROOM_ASSIGN(gradient.tensor, read_recorded_tensor(view));
  HEADROOM_ASSIGN(gradient.is_view, view.get_bool("view"));
  if (view.has("gradient")) {
    gradient.kind = RecordedGradient::Kind::view_of_gradient;
    const auto count = static_cast<int64_t>(current_.recording.node_outputs.size());
    HEADROOM_ASSIGN(const int64_t source, view.get_int("gradient", 0, count - 1));
    gradient.source = static_cast<int32_t>(source);
  } else if (view.has("block")) {
    gradient.kind = RecordedGradient::Kind::block;
    HEADROOM_ASSIGN(const int64_t source,
                    view.get_int("block", 0, static_cast<int64_t>(freed_.size()) - 1));
    if (freed_[static_cast<size_t>(source)]) {
      return view.error_at("block", "the block is no longer there");
    }
    gradient.source = static_cast<int32_t>(source);
  }
  return gradient;
}

Result<void> OperationReader::read_gradient(const JsonView& view) {
  Recording& recording = current_.recording;
  RecordedGradient gradient;
  const int32_t edge = recording.edges[recording.gradients.size()];
  if (view.json().is_null() || edge == kNowhere) {
    recording.gradients.push_back(gradient);
    return {};
  }
  const RecordedTensor* type = &gradient.tensor;
  if (view.has("same") || view.has("result")) {
    HEADROOM_ASSIGN(type, read_passed_on(view, gradient));
  } else {
    HEADROOM_ASSIGN(gradient, read_new_gradient(view));
  }
  const TracedValue& wanted = values_[current_.operation.inputs[static_cast<size_t>(edge)]];
  const bool fits = type->sizes == wanted.tensor.sizes && type->dtype == wanted.tensor.dtype;
  if (gradient.kind != RecordedGradient::Kind::none && !fits) {
    return view.error("a gradient of another shape or type than what it belongs to");
  }
  recording.gradients.push_back(gradient);
  return {};
}

}  // namespace headroom::model
