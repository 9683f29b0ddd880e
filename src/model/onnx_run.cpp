#include "model/onnx_run.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "model/onnx_call.h"
#include "model/onnx_dimensions.h"

namespace headroom::model {
namespace {

using op::Impossible;

constexpr size_t kMostValuesTogether = 64'000'000;  // half a gigabyte

OnnxOperator find_operator(std::string_view operation) {
  for (const auto find : {find_onnx_product, find_onnx_convolution, find_onnx_attention,
                          find_onnx_elementwise, find_onnx_layout, find_onnx_view}) {
    if (const OnnxOperator found = find(operation)) return found;
  }
  return nullptr;
}

class Runner {
 public:
  Runner(const OnnxModel& model, const OnnxSetting& setting)
      : model_(model), dimensions_(model, setting) {}

  Result<OnnxRun> run() {
    for (const OnnxDeclared& value : model_.known) known_[value.name] = &value;
    const std::string where = model_.file;
    HEADROOM_TRY(input_sizes());
    for (const OnnxNode& node : model_.nodes) {
      try {
        run_node(node);
      } catch (const Impossible& impossible) {
        const std::string name = node.name.empty() ? "" : " '" + node.name.substr(0, 80) + "'";
        return Error{ErrorCode::unavailable,
                     "operator " + node.operation.substr(0, 80) + name + ": " + impossible.why,
                     where, impossible.hint};
      }
    }
    result_.open = dimensions_.taken();
    return std::move(result_);
  }

  Result<std::vector<std::vector<int64_t>>> input_sizes() {
    try {
      add_weights();
      return add_inputs();
    } catch (const Impossible& impossible) {
      const bool is_a_question = !impossible.hint.empty();
      return Error{is_a_question ? ErrorCode::usage : ErrorCode::bad_input, impossible.why,
                   model_.file, impossible.hint};
    }
  }

 private:
  void add_weights() {
    for (const OnnxTensor& tensor : model_.weights) {
      OnnxValue value = value_of(tensor);
      value.is_weight = true;
      values_[tensor.name] = std::move(value);
    }
  }

  OnnxValue value_of(const OnnxTensor& tensor) {
    OnnxValue value;
    value.is_there = true;
    value.sizes = tensor.sizes;
    check_sizes(value.sizes);
    value.dtype = tensor.dtype.value_or(op::DType::u8);
    value.is_half_byte = tensor.is_half_byte;
    if (tensor.has_values) keep(value, tensor.values);
    return value;
  }

  void keep(OnnxValue& value, const std::vector<double>& values) {
    if (kept_values_ + values.size() > kMostValuesTogether) return;
    kept_values_ += values.size();
    value.has_values = true;
    value.values = values;
  }

  std::vector<std::vector<int64_t>> add_inputs() {
    std::vector<std::vector<int64_t>> sizes;
    for (const OnnxDeclared& input : model_.inputs) {
      if (values_.contains(input.name)) continue;  // a weight's default
      OnnxValue value;
      value.is_there = true;
      value.dtype = input.dtype.value_or(op::DType::f32);
      if (!input.has_shape) {
        throw Impossible{"the input '" + input.name.substr(0, 80) + "' has no sizes", ""};
      }
      for (size_t i = 0; i < input.dimensions.size(); ++i) {
        value.sizes.push_back(
            dimensions_.size_of(input.dimensions[i], i, input.dimensions.size(), input.name));
      }
      check_sizes(value.sizes);
      sizes.emplace_back(value.sizes.begin(), value.sizes.end());
      values_[input.name] = std::move(value);
    }
    return sizes;
  }

  void run_node(const OnnxNode& node) {
    op::require(!node.has_graph, "branches and loops are not followed");
    std::vector<const OnnxValue*> inputs;
    for (const std::string& name : node.inputs) {
      const auto found = values_.find(name);
      if (!name.empty() && found == values_.end()) {
        throw Impossible{"takes '" + name.substr(0, 80) + "', which nothing before it makes",
                         "operators must be in order, as ONNX demands"};
      }
      inputs.push_back(name.empty() ? nullptr : &found->second);
    }
    if (node.outputs.empty()) return;  // nobody can use what it makes
    OnnxCall call(node, model_.opset, std::move(inputs),
                  std::vector<OnnxValue>(node.outputs.size()), result_.work, budget_);
    const size_t launches = result_.work.size();
    if (const OnnxOperator known = find_operator(node.operation)) {
      known(call);
    } else {
      run_unknown(call);
    }
    const bool is_constant = is_made_once(call);
    for (OnnxValue& output : call.outputs()) output.is_weight |= is_constant;
    if (is_constant || are_known(call)) result_.work.resize(launches);
    take_outputs(node, call.outputs());
  }

  // Of weights and constants alone, before the first run. Weights that are kept small stay so: they
  // are unpacked each time.
  static bool is_made_once(const OnnxCall& call) {
    const std::string& operation = call.node().operation;
    if (operation == "Constant") return true;
    if (operation == "DequantizeLinear" || operation.starts_with("Random")) return false;
    bool takes_any = false;
    for (size_t i = 0; i < call.input_count(); ++i) {
      if (call.has(i) && !call.in(i).is_weight) return false;
      takes_any |= call.has(i);
    }
    return takes_any;
  }

  // Numbers of the graph, from which sizes follow.
  static bool are_known(OnnxCall& call) {
    return std::ranges::all_of(call.outputs(), [](const OnnxValue& output) {
      return !output.is_there || output.has_values;
    });
  }

  // As the file declares its results.
  void run_unknown(OnnxCall& call) {
    const OnnxNode& node = call.node();
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i].empty()) continue;
      const auto found = known_.find(node.outputs[i]);
      op::require(found != known_.end() && found->second->has_shape && found->second->dtype,
                  "not an operator that is known here, and the file does not say what it makes");
      Sizes sizes;
      for (const OnnxDimension& dimension : found->second->dimensions) {
        sizes.push_back(dimensions_.size_of(dimension, sizes.size(),
                                            found->second->dimensions.size(), node.outputs[i]));
      }
      call.make(i, std::move(sizes), *found->second->dtype);
    }
    call.launch(0);
    if (unknown_.insert(node.operation).second) result_.unknown.push_back(node.operation);
  }

  void take_outputs(const OnnxNode& node, std::vector<OnnxValue>& outputs) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (node.outputs[i].empty()) continue;
      OnnxValue& value = outputs[i];
      // One that an operator makes only for another form of it; nobody can use it.
      if (!value.is_there) continue;
      if (value.has_values) {
        const std::vector<double> values = std::move(value.values);
        value.has_values = false;
        keep(value, values);
      }
      values_[node.outputs[i]] = std::move(value);
    }
  }

  const OnnxModel& model_;
  OpenDimensions dimensions_;
  OnnxBudget budget_;
  OnnxRun result_;
  std::unordered_map<std::string_view, const OnnxDeclared*> known_;
  std::unordered_map<std::string, OnnxValue> values_;
  std::unordered_set<std::string> unknown_;
  size_t kept_values_ = 0;
};

}  // namespace

Result<OnnxRun> run_onnx(const OnnxModel& model, const OnnxSetting& setting) {
  return Runner(model, setting).run();
}

Result<std::vector<std::vector<int64_t>>> onnx_input_sizes(const OnnxModel& model,
                                                           const OnnxSetting& setting) {
  return Runner(model, setting).input_sizes();
}

}  // namespace headroom::model
