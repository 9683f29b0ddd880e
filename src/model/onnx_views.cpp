// Operators of ONNX that only look at memory in another shape, and those that say sizes and
// numbers, which are computed (onnx_run.h). Definitions: docs/Operators.md of onnx/onnx.
#include <algorithm>
#include <cmath>

#include "model/onnx_call.h"

namespace headroom::model {
namespace {

using op::DType;
using op::require;

void run_reshape(OnnxCall& call) {
  const OnnxValue& input = call.in(0);
  Sizes sizes = call.sizes_asked("shape", 1);
  require(sizes.size() <= 64, "a tensor of that many dimensions");
  const bool allows_zero = call.integer("allowzero", 0) != 0;
  std::optional<size_t> open;
  Sizes others;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0 && !allows_zero) {
      require(i < input.rank(), "a size of the input that is not there");
      sizes[i] = input.sizes[i];
    }
    if (sizes[i] == -1) {
      require(!open, "two open sizes");
      open = i;
    } else {
      others.push_back(sizes[i]);
    }
  }
  check_sizes(others);
  if (open) {
    int64_t product = 1;
    for (const int64_t size : others) product *= size;
    require(product > 0 && input.elements() % product == 0, "another number of elements");
    sizes[*open] = input.elements() / product;
  }
  call.make_view(std::move(sizes));
}

void run_flatten(OnnxCall& call) {
  const Sizes& input = call.in(0).sizes;
  const int64_t axis = call.integer("axis", 1);
  const size_t at =
      axis == static_cast<int64_t>(input.size()) ? input.size() : axis_of(axis, input.size());
  Sizes sizes{1, 1};
  for (size_t i = 0; i < input.size(); ++i) sizes[i < at ? 0 : 1] *= input[i];
  call.make_view(std::move(sizes));
}

void run_squeeze(OnnxCall& call) {
  const Sizes& input = call.in(0).sizes;
  const auto axes = call.integers("axes", 1);
  std::vector<bool> goes(input.size());
  for (size_t i = 0; i < input.size(); ++i) goes[i] = !axes && input[i] == 1;
  for (const int64_t axis : axes.value_or(Sizes())) goes[axis_of(axis, input.size())] = true;
  Sizes sizes;
  for (size_t i = 0; i < input.size(); ++i) {
    if (!goes[i]) sizes.push_back(input[i]);
  }
  call.make_view(std::move(sizes));
}

void run_unsqueeze(OnnxCall& call) {
  const Sizes& input = call.in(0).sizes;
  const Sizes axes = call.sizes_asked("axes", 1);
  const size_t rank = input.size() + axes.size();
  require(rank <= 64, "a tensor of that many dimensions");
  Sizes sizes(rank, 0);
  for (const int64_t axis : axes) {
    int64_t& size = sizes[axis_of(axis, rank)];
    require(size == 0, "a dimension named twice");
    size = 1;
  }
  size_t next = 0;
  for (int64_t& size : sizes) {
    if (size == 0) size = input[next++];
  }
  call.make_view(std::move(sizes));
}

void run_identity(OnnxCall& call) {
  call.make_view(call.in(0).sizes);
  call.make(1, call.in(0).sizes, DType::boolean);  // Dropout's mask
}

void run_shape(OnnxCall& call) {
  const Sizes& input = call.in(0).sizes;
  const auto rank = static_cast<int64_t>(input.size());
  const auto place = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const int64_t start = place(std::clamp(call.integer("start", 0), -kMostElements, kMostElements));
  const int64_t end = place(std::clamp(call.integer("end", rank), -kMostElements, kMostElements));
  std::vector<double> values;
  for (int64_t i = start; i < end; ++i) {
    values.push_back(static_cast<double>(input[static_cast<size_t>(i)]));
  }
  call.make(0, {static_cast<int64_t>(values.size())}, DType::i64);
  call.set_values(0, std::move(values));
}

void run_size(OnnxCall& call) {
  call.make(0, {}, DType::i64);
  call.set_values(0, {static_cast<double>(call.in(0).elements())});
}

void run_range(OnnxCall& call) {
  const auto start = call.numbers("", 0);
  const auto limit = call.numbers("", 1);
  const auto delta = call.numbers("", 2);
  require(start && limit && delta && start->size() == 1 && limit->size() == 1 &&
              delta->size() == 1 && (*delta)[0] != 0,
          "a range without bounds");
  const double count = std::max(std::ceil(((*limit)[0] - (*start)[0]) / (*delta)[0]), 0.0);
  require(count <= static_cast<double>(kMostElements), "a range too long");
  call.make(0, {static_cast<int64_t>(count)}, call.in(0).dtype);
  if (count <= static_cast<double>(kMostKnownValues)) {
    std::vector<double> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = (*start)[0] + static_cast<double>(i) * (*delta)[0];
    }
    return call.set_values(0, std::move(values));
  }
  call.launch_moving(0, call.out(0).bytes());
}

void run_constant_of_shape(OnnxCall& call) {
  const OnnxAttribute* const given = call.find("value");
  const bool has_value = given != nullptr && given->tensor.has_value();
  const DType dtype = has_value ? given->tensor->dtype.value_or(DType::f32) : DType::f32;
  const double value =
      has_value && given->tensor->values.size() == 1 ? given->tensor->values[0] : 0;
  call.make(0, call.sizes_asked("", 0), dtype);
  const int64_t count = call.out(0).elements();
  if (count <= kMostKnownValues) {
    return call.set_values(0, std::vector<double>(static_cast<size_t>(count), value));
  }
  call.launch_moving(0, call.out(0).bytes());
}

void run_constant(OnnxCall& call) {
  for (const OnnxAttribute& attribute : call.node().attributes) {
    if (attribute.name == "value" && attribute.tensor) {
      call.make(0, attribute.tensor->sizes, attribute.tensor->dtype.value_or(DType::u8));
      if (attribute.tensor->has_values) call.set_values(0, attribute.tensor->values);
    } else if (attribute.name == "value_int" || attribute.name == "value_float") {
      const bool is_integer = attribute.name == "value_int";
      call.make(0, {}, is_integer ? DType::i64 : DType::f32);
      call.set_values(0, {is_integer ? static_cast<double>(attribute.integer) : attribute.number});
    } else if (attribute.name == "value_ints") {
      call.make(0, {static_cast<int64_t>(attribute.integers.size())}, DType::i64);
      call.set_values(0, {attribute.integers.begin(), attribute.integers.end()});
    } else if (attribute.name == "value_floats") {
      call.make(0, {static_cast<int64_t>(attribute.numbers.size())}, DType::f32);
      call.set_values(0, attribute.numbers);
    }
  }
  require(call.out(0).is_there, "a constant of a kind not known here");
}

constexpr NamedOnnxOperator kOperators[] = {
    {"Reshape", run_reshape},   {"Flatten", run_flatten},
    {"Squeeze", run_squeeze},   {"Unsqueeze", run_unsqueeze},
    {"Identity", run_identity}, {"Dropout", run_identity},
    {"Shape", run_shape},       {"Size", run_size},
    {"Range", run_range},       {"ConstantOfShape", run_constant_of_shape},
    {"Constant", run_constant},
};

}  // namespace

OnnxOperator find_onnx_view(std::string_view operation) {
  return find_named(kOperators, operation);
}

}  // namespace headroom::model
