#include "model/onnx_run.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "base/units.h"
#include "model/onnx_call.h"

namespace headroom::model {
namespace {

using op::Impossible;

constexpr int64_t kMostElements = int64_t{1} << 50;
constexpr size_t kMostRank = 64;
constexpr size_t kMostValuesTogether = 64'000'000;  // half a gigabyte

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

class Runner {
 public:
  Runner(const OnnxModel& model, const OnnxSetting& setting) : model_(model), setting_(setting) {}

  Result<OnnxRun> run() {
    for (const OnnxDeclared& value : model_.known) known_[value.name] = &value;
    const std::string where = model_.file;
    try {
      add_weights();
      add_inputs();
    } catch (const Impossible& impossible) {
      return Error{ErrorCode::bad_input, impossible.why, where, ""};
    }
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
    return std::move(result_);
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
    if (tensor.has_values) keep(value, tensor.values);
    return value;
  }

  void keep(OnnxValue& value, const std::vector<double>& values) {
    if (kept_values_ + values.size() > kMostValuesTogether) return;
    kept_values_ += values.size();
    value.has_values = true;
    value.values = values;
  }

  void add_inputs() {
    for (const OnnxDeclared& input : model_.inputs) {
      if (values_.contains(input.name)) continue;  // a weight's default
      OnnxValue value;
      value.is_there = true;
      value.dtype = input.dtype.value_or(op::DType::f32);
      if (!input.has_shape) {
        throw Impossible{"the input '" + input.name.substr(0, 80) + "' has no sizes", ""};
      }
      for (size_t i = 0; i < input.dimensions.size(); ++i) {
        value.sizes.push_back(size_of(input.dimensions[i], i, input.name));
      }
      check_sizes(value.sizes);
      values_[input.name] = std::move(value);
    }
  }

  // Open dimensions by their name; without one the first is the batch.
  int64_t size_of(const OnnxDimension& dimension, size_t place, const std::string& of) {
    if (dimension.size && *dimension.size > 0) return *dimension.size;
    if (dimension.size && *dimension.size == 0 && dimension.name.empty()) return 0;
    const std::string& name = dimension.name;
    const bool is_past = contains(name, "past") && !contains(name, "+");
    const bool is_batch = contains(name, "batch") || (place == 0 && !contains(name, "seq"));
    const int64_t size = is_past ? 0 : is_batch ? setting_.batch : setting_.sequence;
    result_.has_batch |= !is_past && is_batch;
    result_.has_sequence |= !is_past && !is_batch;
    const std::string shown = name.empty()
                                  ? "dimension " + std::to_string(place) + " of " + of.substr(0, 80)
                                  : name.substr(0, 80);
    if (named_.insert(shown).second) {
      result_.open.push_back(shown + " taken as " + std::to_string(size));
    }
    return size;
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
    OnnxCall call(node, model_.opset, std::move(inputs),
                  std::vector<OnnxValue>(node.outputs.size()), result_.work);
    OnnxOperator known = find_onnx_product(node.operation);
    if (known == nullptr) known = find_onnx_elementwise(node.operation);
    if (known == nullptr) known = find_onnx_layout(node.operation);
    const size_t launches = result_.work.size();
    if (known != nullptr) {
      known(call);
    } else {
      run_unknown(call);
    }
    if (is_made_once(call)) {
      result_.work.resize(launches);
      for (OnnxValue& output : call.outputs()) output.is_weight = true;
    }
    take_outputs(node, call.outputs());
  }

  // Of weights alone, before the first run. Weights that are kept small stay so: they are unpacked
  // each time.
  static bool is_made_once(const OnnxCall& call) {
    for (size_t i = 0; i < call.input_count(); ++i) {
      if (call.has(i) && !call.in(i).is_weight && !call.in(i).has_values) return false;
    }
    return call.node().operation != "DequantizeLinear";
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
        sizes.push_back(size_of(dimension, sizes.size(), node.outputs[i]));
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
  OnnxSetting setting_;
  OnnxRun result_;
  std::unordered_map<std::string_view, const OnnxDeclared*> known_;
  std::unordered_map<std::string, OnnxValue> values_;
  std::unordered_set<std::string> named_;
  std::unordered_set<std::string> unknown_;
  size_t kept_values_ = 0;
};

}  // namespace

int64_t OnnxValue::elements() const {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;  // check_sizes() holds it
  return count;
}

double OnnxValue::bytes() const {
  return static_cast<double>(elements()) * static_cast<double>(op::element_size(dtype));
}

void check_sizes(const Sizes& sizes) {
  op::require(sizes.size() <= kMostRank, "a tensor of that many dimensions");
  int64_t count = 1;
  for (const int64_t size : sizes) {
    op::require(size >= 0, "a negative size");
    // A dimension of none must not hide another that is too large.
    const auto product = checked_multiply(count, std::max<int64_t>(size, 1));
    op::require(product && *product <= kMostElements, "a tensor that no machine holds");
    count = *product;
  }
}

Sizes broadcast(const Sizes& a, const Sizes& b) {
  Sizes sizes(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    op::require(x == y || x == 1 || y == 1, "sizes that do not fit together");
    sizes[sizes.size() - 1 - i] = x == 1 ? y : x;
  }
  return sizes;
}

size_t axis_of(int64_t axis, size_t rank) {
  const auto count = static_cast<int64_t>(rank);
  op::require(axis >= -count && axis < count, "a dimension that is not there");
  return static_cast<size_t>(axis < 0 ? axis + count : axis);
}

const OnnxAttribute* OnnxCall::find(std::string_view name) const {
  for (const OnnxAttribute& attribute : node_.attributes) {
    if (attribute.name == name) return &attribute;
  }
  return nullptr;
}

int64_t OnnxCall::integer(std::string_view name, int64_t otherwise) const {
  const OnnxAttribute* const attribute = find(name);
  return attribute == nullptr ? otherwise : attribute->integer;
}

std::string_view OnnxCall::text(std::string_view name) const {
  const OnnxAttribute* const attribute = find(name);
  return attribute == nullptr ? std::string_view() : std::string_view(attribute->text);
}

std::optional<std::vector<double>> OnnxCall::numbers(std::string_view name, size_t i) const {
  if (const OnnxAttribute* const attribute = find(name)) {
    if (!attribute->numbers.empty() || attribute->integers.empty()) return attribute->numbers;
    return std::vector<double>(attribute->integers.begin(), attribute->integers.end());
  }
  if (!has(i)) return std::nullopt;
  if (in(i).elements() == 0) return std::vector<double>();
  op::require(in(i).has_values, "what it makes depends on data that is not in the file");
  return in(i).values;
}

std::optional<Sizes> OnnxCall::integers(std::string_view name, size_t i) const {
  if (const OnnxAttribute* const attribute = find(name)) return attribute->integers;
  const auto found = numbers("", i);
  if (!found) return std::nullopt;
  constexpr double kLargest = 9e18;
  Sizes values;
  for (const double value : *found) {
    op::require(!std::isnan(value), "a size that is no number");
    values.push_back(static_cast<int64_t>(std::clamp(value, -kLargest, kLargest)));
  }
  return values;
}

void OnnxCall::make(size_t i, Sizes sizes, op::DType dtype) {
  if (i >= outputs_.size() || node_.outputs[i].empty()) return;
  check_sizes(sizes);
  outputs_[i].is_there = true;
  outputs_[i].sizes = std::move(sizes);
  outputs_[i].dtype = dtype;
}

void OnnxCall::set_values(size_t i, std::vector<double> values) {
  if (i >= outputs_.size() || !outputs_[i].is_there) return;
  if (outputs_[i].elements() != static_cast<int64_t>(values.size())) return;
  outputs_[i].has_values = true;
  outputs_[i].values = std::move(values);
}

void OnnxCall::make_view(Sizes sizes) {
  make(0, std::move(sizes), in(0).dtype);
  if (outputs_.empty()) return;
  op::require(outputs_[0].elements() == in(0).elements(), "another number of elements");
  outputs_[0].is_weight = in(0).is_weight;
  if (in(0).has_values) set_values(0, in(0).values);
}

void OnnxCall::launch_moving(double read, double written) {
  const OnnxValue* made = nullptr;
  for (const OnnxValue& output : outputs_) {
    if (made == nullptr && output.is_there) made = &output;
  }
  if (made == nullptr || (read <= 0 && written <= 0)) return;
  OnnxWork work;
  work.operation = node_.operation;
  work.bytes_read = read;
  work.bytes_written = written;
  work.type = made->dtype;
  work.n = made->sizes.empty() ? 1 : std::max<int64_t>(made->sizes.back(), 1);
  work.m = std::max<int64_t>(made->elements() / work.n, 1);
  work_.push_back(work);
}

void OnnxCall::launch(double flops) {
  double read = 0;
  double written = 0;
  for (const OnnxValue* input : inputs_) read += input == nullptr ? 0 : input->bytes();
  for (const OnnxValue& output : outputs_) written += output.is_there ? output.bytes() : 0;
  const size_t before = work_.size();
  launch_moving(read, written);
  if (work_.size() > before) work_.back().flops = flops;
}

void OnnxCall::launch_product(const OnnxWork& sizes) {
  const size_t before = work_.size();
  launch(0);
  if (work_.size() == before) return;
  OnnxWork& made = work_.back();
  OnnxWork product = sizes;
  product.operation = made.operation;
  product.bytes_read = made.bytes_read;
  product.bytes_written = made.bytes_written;
  if (product.kind == OnnxWorkKind::rows) product.kind = OnnxWorkKind::product;
  made = product;
}

Result<OnnxRun> run_onnx(const OnnxModel& model, const OnnxSetting& setting) {
  return Runner(model, setting).run();
}

}  // namespace headroom::model
