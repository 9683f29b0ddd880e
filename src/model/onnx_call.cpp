#include "model/onnx_call.h"

#include <algorithm>
#include <cmath>

#include "base/units.h"

namespace headroom::model {
namespace {

constexpr size_t kMostRank = 64;

}  // namespace

void OnnxBudget::spend(int64_t operations) {
  op::require(operations <= left_, "a graph that computes that many numbers is not believed");
  left_ -= operations;
}

int64_t OnnxValue::elements() const {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;  // check_sizes() holds it
  return count;
}

double OnnxValue::bytes() const {
  const double element = is_half_byte ? 0.5 : static_cast<double>(op::element_size(dtype));
  return static_cast<double>(elements()) * element;
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
  spend(in(i).elements());
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

Sizes OnnxCall::sizes_asked(std::string_view name, size_t i) const {
  const auto asked = integers(name, i);
  op::require(asked.has_value(), "its sizes are missing");
  return *asked;
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
  spend(outputs_[i].elements());
  outputs_[i].has_values = true;
  outputs_[i].values = std::move(values);
}

void OnnxCall::make_view(Sizes sizes) {
  make(0, std::move(sizes), in(0).dtype);
  if (outputs_.empty()) return;
  op::require(outputs_[0].elements() == in(0).elements(), "another number of elements");
  outputs_[0].is_weight = in(0).is_weight;
  outputs_[0].is_half_byte = in(0).is_half_byte;
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

OnnxOperator find_named(std::span<const NamedOnnxOperator> operators, std::string_view operation) {
  const auto found = std::ranges::find(operators, operation, &NamedOnnxOperator::name);
  return found == operators.end() ? nullptr : found->run;
}

double OnnxCall::bytes_read() const {
  double read = 0;
  for (const OnnxValue* input : inputs_) read += input == nullptr ? 0 : input->bytes();
  return read;
}

double OnnxCall::bytes_written() const {
  double written = 0;
  for (const OnnxValue& output : outputs_) written += output.is_there ? output.bytes() : 0;
  return written;
}

void OnnxCall::launch(double flops) {
  const size_t before = work_.size();
  launch_moving(bytes_read(), bytes_written());
  if (work_.size() > before) work_.back().flops = flops;
}

void OnnxCall::launch_product(const OnnxWork& sizes) {
  launch_product(sizes, bytes_read(), bytes_written());
}

void OnnxCall::launch_product(const OnnxWork& sizes, double read, double written) {
  const size_t before = work_.size();
  launch_moving(read, written);
  if (work_.size() == before) return;
  OnnxWork& made = work_.back();
  OnnxWork product = sizes;
  product.operation = made.operation;
  product.bytes_read = made.bytes_read;
  product.bytes_written = made.bytes_written;
  if (product.kind == OnnxWorkKind::rows) product.kind = OnnxWorkKind::product;
  made = product;
}

}  // namespace headroom::model
