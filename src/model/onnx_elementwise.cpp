// Operators of ONNX that go element by element, normalize, or reduce; those on few known integers,
// from which sizes follow, are computed. Definitions: docs/Operators.md of onnx/onnx,
// docs/ContribOperators.md of microsoft/onnxruntime.
#include <algorithm>
#include <array>
#include <cmath>

#include "model/onnx_call.h"

namespace headroom::model {
namespace {

using op::DType;
using op::require;

// What comes of two numbers; of one the second is 0.
using Fold = double (*)(double, double);

double divided(double a, double b) { return b == 0 ? 0 : a / b; }
double remainder_of(double a, double b) { return b == 0 ? 0 : a - b * std::floor(a / b); }

struct Elementwise {
  std::string_view name;
  Fold fold = nullptr;
  bool is_logical = false;  // gives true or false
};

constexpr std::array kBinary{
    Elementwise{"Add", [](double a, double b) { return a + b; }},
    Elementwise{"Sub", [](double a, double b) { return a - b; }},
    Elementwise{"Mul", [](double a, double b) { return a * b; }},
    Elementwise{"Div", divided},
    Elementwise{"Mod", remainder_of},
    Elementwise{"Min", [](double a, double b) { return std::min(a, b); }},
    Elementwise{"Max", [](double a, double b) { return std::max(a, b); }},
    Elementwise{"Pow", [](double a, double b) { return std::pow(a, b); }},
    Elementwise{"Equal", [](double a, double b) { return a == b ? 1.0 : 0.0; }, true},
    Elementwise{"Less", [](double a, double b) { return a < b ? 1.0 : 0.0; }, true},
    Elementwise{"LessOrEqual", [](double a, double b) { return a <= b ? 1.0 : 0.0; }, true},
    Elementwise{"Greater", [](double a, double b) { return a > b ? 1.0 : 0.0; }, true},
    Elementwise{"GreaterOrEqual", [](double a, double b) { return a >= b ? 1.0 : 0.0; }, true},
    Elementwise{"And", [](double a, double b) { return a != 0 && b != 0 ? 1.0 : 0.0; }, true},
    Elementwise{"Or", [](double a, double b) { return a != 0 || b != 0 ? 1.0 : 0.0; }, true},
    Elementwise{"Xor", nullptr, true},
    Elementwise{"PRelu"},
    Elementwise{"BitShift"},
    Elementwise{"BitwiseAnd"},
    Elementwise{"BitwiseOr"},
    Elementwise{"Sum"},
    Elementwise{"Mean"},
    Elementwise{"BiasAdd"},
    Elementwise{"BiasGelu"},
    Elementwise{"BiasSplitGelu"},
    Elementwise{"AddGelu"},
    Elementwise{"QuickGelu"},
    Elementwise{"FastGelu"}};

constexpr std::array kUnary{
    Elementwise{"Neg", [](double a, double) { return -a; }},
    Elementwise{"Abs", [](double a, double) { return std::abs(a); }},
    Elementwise{"Floor", [](double a, double) { return std::floor(a); }},
    Elementwise{"Ceil", [](double a, double) { return std::ceil(a); }},
    Elementwise{"Sqrt", [](double a, double) { return std::sqrt(std::max(a, 0.0)); }},
    Elementwise{"Reciprocal", [](double a, double) { return divided(1, a); }},
    Elementwise{"Not", [](double a, double) { return a == 0 ? 1.0 : 0.0; }, true},
    Elementwise{"IsNaN", nullptr, true},
    Elementwise{"IsInf", nullptr, true},
    Elementwise{"Exp"},
    Elementwise{"Log"},
    Elementwise{"Sin"},
    Elementwise{"Cos"},
    Elementwise{"Tan"},
    Elementwise{"Atan"},
    Elementwise{"Erf"},
    Elementwise{"Sign"},
    Elementwise{"Round"},
    Elementwise{"Tanh"},
    Elementwise{"Sigmoid"},
    Elementwise{"Relu"},
    Elementwise{"LeakyRelu"},
    Elementwise{"ThresholdedRelu"},
    Elementwise{"Elu"},
    Elementwise{"Selu"},
    Elementwise{"Celu"},
    Elementwise{"Gelu"},
    Elementwise{"Silu"},
    Elementwise{"Swish"},
    Elementwise{"Mish"},
    Elementwise{"HardSwish"},
    Elementwise{"HardSigmoid"},
    Elementwise{"Softplus"},
    Elementwise{"Softsign"},
    Elementwise{"BitwiseNot"},
    Elementwise{"Clip"},
    Elementwise{"CumSum"},
    Elementwise{"Trilu"},
    Elementwise{"RotaryEmbedding"},
    Elementwise{"Softmax"},
    Elementwise{"LogSoftmax"},
    Elementwise{"Hardmax"},
    Elementwise{"LpNormalization"},
    Elementwise{"LRN"},
    Elementwise{"BatchNormalization"},
    Elementwise{"InstanceNormalization"},
    Elementwise{"GroupNormalization"},
    Elementwise{"GroupNorm"},
    Elementwise{"SkipGroupNorm"}};

// Where an element of the result lies in an operand that is broadcast.
int64_t place_in(const OnnxValue& value, const Sizes& result, int64_t at) {
  int64_t place = 0;
  int64_t stride = 1;
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t index = at % result[result.size() - 1 - i];
    at /= result[result.size() - 1 - i];
    if (i >= value.rank()) continue;
    const int64_t size = value.sizes[value.rank() - 1 - i];
    if (size > 1) place += index * stride;
    stride *= size;
  }
  return place;
}

double element_of(const OnnxValue& value, const Sizes& result, size_t at) {
  return value.values[static_cast<size_t>(place_in(value, result, static_cast<int64_t>(at)))];
}

// Each element of the result, found in each operand.
void spend_on(const OnnxCall& call) {
  const auto steps = static_cast<int64_t>((call.out(0).rank() + 1) * call.input_count());
  call.spend(call.out(0).elements() * steps);
}

bool is_small(const OnnxCall& call) {
  return call.out(0).is_there && call.out(0).elements() <= kMostKnownValues;
}

double rounded(double value, DType dtype) {
  return op::is_floating(dtype) ? value : std::trunc(value);
}

void fold(OnnxCall& call, Fold fold_two) {
  if (call.input_count() > 2) return;
  for (size_t i = 0; i < call.input_count(); ++i) {
    if (call.has(i) && !call.in(i).has_values) return;
  }
  if (fold_two == nullptr || !is_small(call)) return;
  const OnnxValue& made = call.out(0);
  spend_on(call);
  std::vector<double> values(static_cast<size_t>(made.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    const double first = element_of(call.in(0), made.sizes, i);
    const double second = call.has(1) ? element_of(call.in(1), made.sizes, i) : 0;
    values[i] = rounded(fold_two(first, second), call.in(0).dtype);
  }
  call.set_values(0, std::move(values));
}

// Made of few known numbers, it is a number of the graph, not work.
void finish(OnnxCall& call, double operations_an_element) {
  if (call.out(0).has_values) return;
  call.launch(operations_an_element * static_cast<double>(call.out(0).elements()));
}

void run_binary(OnnxCall& call, const Elementwise& one) {
  Sizes sizes = call.in(0).sizes;
  for (size_t i = 1; i < call.input_count(); ++i) {
    if (call.has(i)) sizes = broadcast(sizes, call.in(i).sizes);
  }
  call.make(0, std::move(sizes), one.is_logical ? DType::boolean : call.in(0).dtype);
  fold(call, one.fold);
  finish(call, 1);
}

void run_unary(OnnxCall& call, const Elementwise& one) {
  call.make(0, call.in(0).sizes, one.is_logical ? DType::boolean : call.in(0).dtype);
  if (call.input_count() == 1) fold(call, one.fold);
  finish(call, 1);
}

template <const auto& table, void (*run)(OnnxCall&, const Elementwise&)>
void run_from(OnnxCall& call) {
  for (const Elementwise& one : table) {
    if (one.name == call.node().operation) return run(call, one);
  }
}

void run_where(OnnxCall& call) {
  call.make(0, broadcast(broadcast(call.in(0).sizes, call.in(1).sizes), call.in(2).sizes),
            call.in(1).dtype);
  const bool are_known =
      call.in(0).has_values && call.in(1).has_values && call.in(2).has_values && is_small(call);
  if (are_known) {
    spend_on(call);
    const Sizes& made = call.out(0).sizes;
    std::vector<double> values(static_cast<size_t>(call.out(0).elements()));
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t chosen = element_of(call.in(0), made, i) != 0 ? 1 : 2;
      values[i] = element_of(call.in(chosen), made, i);
    }
    call.set_values(0, std::move(values));
  }
  finish(call, 1);
}

void run_cast(OnnxCall& call) {
  const auto dtype = call.node().operation == "CastLike" ? std::optional<DType>(call.in(1).dtype)
                                                         : onnx_dtype(call.integer("to", 0));
  require(dtype.has_value(), "a cast to a type that is not known here");
  call.make(0, call.in(0).sizes, *dtype);
  if (call.in(0).has_values) {
    std::vector<double> values = call.in(0).values;
    for (double& value : values) {
      value = *dtype == DType::boolean ? (value != 0 ? 1.0 : 0.0) : rounded(value, *dtype);
    }
    call.set_values(0, std::move(values));
  }
  if (call.in(0).dtype != *dtype) finish(call, 0);
}

void run_quantize(OnnxCall& call) {
  const bool has_zero = call.has(2);
  call.make(0, call.in(0).sizes, has_zero ? call.in(2).dtype : DType::u8);
  finish(call, 2);
}
void run_dequantize(OnnxCall& call) {
  call.make(0, call.in(0).sizes, call.in(1).dtype);
  finish(call, 2);
}
void run_dynamic_quantize(OnnxCall& call) {
  call.make(0, call.in(0).sizes, DType::u8);
  call.make(1, {}, DType::f32);
  call.make(2, {}, DType::u8);
  finish(call, 4);
}

// Over the dimensions from `axis` on; the mean and its like have one element for each row.
void run_layer_norm(OnnxCall& call) {
  const OnnxValue& input = call.in(0);
  call.make(0, input.sizes, input.dtype);
  Sizes rows = input.sizes;
  const size_t axis = rows.empty() ? 0 : axis_of(call.integer("axis", -1), rows.size());
  std::fill(rows.begin() + static_cast<std::ptrdiff_t>(axis), rows.end(), 1);
  call.make(1, rows, DType::f32);
  call.make(2, rows, DType::f32);
  finish(call, 8);
}
// The sum of input and skip comes out fourth.
void run_skip_norm(OnnxCall& call) {
  const OnnxValue& input = call.in(0);
  call.make(0, input.sizes, input.dtype);
  call.make(3, input.sizes, input.dtype);
  finish(call, 9);
}

double reduced(std::string_view operation, const std::vector<double>& values) {
  double result = operation == "ReduceProd" ? 1 : operation == "ReduceSum" ? 0 : values[0];
  for (const double value : values) {
    if (operation == "ReduceProd") result *= value;
    if (operation == "ReduceSum") result += value;
    if (operation == "ReduceMax") result = std::max(result, value);
    if (operation == "ReduceMin") result = std::min(result, value);
  }
  return result;
}

Sizes without(const Sizes& sizes, const Sizes& axes, bool keeps) {
  std::vector<bool> goes(sizes.size(), axes.empty());
  for (const int64_t axis : axes) goes[axis_of(axis, sizes.size())] = true;
  Sizes left;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!goes[i]) left.push_back(sizes[i]);
    if (goes[i] && keeps) left.push_back(1);
  }
  return left;
}

void run_reduce(OnnxCall& call) {
  const OnnxValue& input = call.in(0);
  const Sizes axes = call.integers("axes", 1).value_or(Sizes());
  if (axes.empty() && call.integer("noop_with_empty_axes", 0) != 0) {
    return call.make_view(input.sizes);
  }
  call.make(0, without(input.sizes, axes, call.integer("keepdims", 1) != 0), input.dtype);
  const bool is_whole = call.out(0).elements() == 1;
  const std::string_view name = call.node().operation;
  const bool is_simple =
      name == "ReduceProd" || name == "ReduceSum" || name == "ReduceMax" || name == "ReduceMin";
  if (is_whole && is_simple && input.has_values && !input.values.empty()) {
    call.spend(input.elements());
    call.set_values(0, {reduced(name, input.values)});
  }
  if (!call.out(0).has_values) call.launch(static_cast<double>(input.elements()));
}

void run_arg_reduce(OnnxCall& call) {
  const OnnxValue& input = call.in(0);
  call.make(0, without(input.sizes, {call.integer("axis", 0)}, call.integer("keepdims", 1) != 0),
            DType::i64);
  call.launch(static_cast<double>(input.elements()));
}

constexpr NamedOnnxOperator kOthers[] = {
    {"Where", run_where},
    {"Cast", run_cast},
    {"CastLike", run_cast},
    {"QuantizeLinear", run_quantize},
    {"DequantizeLinear", run_dequantize},
    {"DynamicQuantizeLinear", run_dynamic_quantize},
    {"LayerNormalization", run_layer_norm},
    {"SimplifiedLayerNormalization", run_layer_norm},
    {"RMSNormalization", run_layer_norm},
    {"SkipLayerNormalization", run_skip_norm},
    {"SkipSimplifiedLayerNormalization", run_skip_norm},
    {"ArgMax", run_arg_reduce},
    {"ArgMin", run_arg_reduce},
};

}  // namespace

OnnxOperator find_onnx_elementwise(std::string_view operation) {
  if (const OnnxOperator other = find_named(kOthers, operation)) return other;
  const auto is_it = [&](const Elementwise& one) { return one.name == operation; };
  if (std::any_of(kBinary.begin(), kBinary.end(), is_it)) return run_from<kBinary, run_binary>;
  if (std::any_of(kUnary.begin(), kUnary.end(), is_it)) return run_from<kUnary, run_unary>;
  return operation.starts_with("Reduce") ? run_reduce : nullptr;
}

}  // namespace headroom::model
