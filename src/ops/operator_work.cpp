#include "ops/operator_work.h"

#include <algorithm>
#include <array>

#include "operator/functional.h"
#include "ops/convolution_work.h"
#include "ops/work_sum.h"
#include "text/ascii.h"
#include "text/json.h"

namespace headroom::ops {
namespace {

using op::DType;
using op::Eager;
using op::Tensor;
using Tensors = std::vector<Tensor>;

constexpr size_t kMostInputs = 1000;
constexpr int64_t kLargestSize = int64_t{1} << 40;

// What an operator is in the step model: how many tensors it needs, and the call.
struct Known {
  std::string_view name;
  size_t tensors;
  bool is_product;
  void (*run)(Eager& e, const Tensors& in);
  // Of a backward that is counted as its forward: so many times its FLOPs and its bytes.
  double flops_factor = 1;
  double bytes_factor = 1;
};

void require_rank(const Tensors& in, size_t count, int rank) {
  for (size_t i = 0; i < count; ++i) op::require(in[i].rank() == rank, "not of that rank");
}

void run_mm(Eager& e, const Tensors& in) {
  require_rank(in, 2, 2);
  op::require(in[0].size(1) == in[1].size(0), "sizes of a product that do not fit");
  op::mm(e, in[0], in[1]);
}
// ONNX's, of any rank.
void run_matmul(Eager& e, const Tensors& in) {
  op::require(in[0].rank() >= 2 && in[1].rank() >= 2 && in[0].size(-1) == in[1].size(-2),
              "sizes of a product that do not fit");
  op::matmul(e, in[0], in[1]);
}
// It may say that a factor lies the other way round, which a profile does not tell.
void run_gemm(Eager& e, const Tensors& in) {
  require_rank(in, 2, 2);
  const bool lies_right = in[0].size(1) == in[1].size(0);
  op::require(lies_right || in[0].size(1) == in[1].size(1), "sizes of a product that do not fit");
  op::mm(e, in[0], lies_right ? in[1] : op::t(e, in[1]));
}
void run_addmm(Eager& e, const Tensors& in) { run_mm(e, {in[1], in[2]}); }
void run_bmm(Eager& e, const Tensors& in) {
  require_rank(in, 2, 3);
  op::require(in[0].size(0) == in[1].size(0) && in[0].size(2) == in[1].size(1),
              "sizes of a product that do not fit");
  op::bmm(e, in[0], in[1]);
}
void run_baddbmm(Eager& e, const Tensors& in) { run_bmm(e, {in[1], in[2]}); }

// [batch, heads, sequence, head]
void run_sdpa(Eager& e, const Tensors& in) {
  require_rank(in, 3, 4);
  for (size_t i = 1; i < 3; ++i) {
    op::require(in[i].size(0) == in[0].size(0) && in[i].size(1) >= 1 &&
                    in[0].size(1) % in[i].size(1) == 0 && in[i].size(3) == in[0].size(3) &&
                    in[i].size(2) == in[1].size(2),
                "heads that do not fit");
  }
  // Whether it was causal is not recorded: a floor takes the half that both have.
  op::flash_attention(e, op::transpose(e, in[0], 1, 2), op::transpose(e, in[1], 1, 2),
                      op::transpose(e, in[2], 1, 2), {0, in[0].size(2) == in[1].size(2), true});
}

// [batch, sequence, heads, head]; sequences of several lengths behind one another have no such
// sizes.
void run_flash(Eager& e, const Tensors& in) {
  require_rank(in, 3, 4);
  run_sdpa(e, {op::transpose(e, in[0], 1, 2), op::transpose(e, in[1], 1, 2),
               op::transpose(e, in[2], 1, 2)});
}

// Five products where forward has two, and eight tensors where it has four (the gradient, the
// result and the three inputs are read, three gradients written): counted as forward twice over, so
// that of eight two are counted as written.
constexpr double kFlashBackwardFlops = 2.5;
constexpr double kFlashBackwardBytes = 2;
template <void (*forward)(Eager&, const Tensors&)>
void run_flash_backward(Eager& e, const Tensors& in) {
  forward(e, {in[1], in[2], in[3]});  // behind the gradient
}

// Of an activation or softmax: the gradient and what forward kept, element by element.
void run_pointwise_backward(Eager& e, const Tensors& in) {
  op::require(in[0].elements() == in[1].elements(), "another size");
  op::mul(e, in[0], in[1]);
}

// Over the whole tensor: what is read is the same for any dimensions, what is written is least.
void run_reduction(Eager& e, const Tensors& in) {
  op::require(in[0].rank() > 0, "a number");
  std::vector<int> dims(static_cast<size_t>(in[0].rank()));
  for (size_t i = 0; i < dims.size(); ++i) dims[i] = static_cast<int>(i);
  op::sum(e, in[0], dims, false);
}

void run_softmax(Eager& e, const Tensors& in) {
  op::require(in[0].rank() > 0, "a number");
  op::softmax(e, in[0], -1);
}

// The input, then its weight; a bias where there is one.
void run_layer_norm(Eager& e, const Tensors& in) {
  op::require(in[0].rank() > 0, "a number");
  for (size_t i = 1; i < in.size() && i < 3; ++i) {
    op::require(in[i].rank() == 1 && in[i].size(0) == in[0].size(-1), "another width");
  }
  op::layer_norm(e, in[0], in.size() > 1 ? in[1] : Tensor(), in.size() > 2 ? in[2] : Tensor());
}
void run_rms_norm(Eager& e, const Tensors& in) {
  op::require(in[0].rank() > 0 && in[1].rank() == 1 && in[1].size(0) == in[0].size(-1),
              "another width");
  op::rms_norm(e, in[0], in[1]);
}

void run_embedding(Eager& e, const Tensors& in) {
  op::require(in[0].rank() == 2, "no table");
  op::embedding(e, in[0], in[1]);
}

// The tensors side by side in their longest dimension: what is moved is the same for any.
void run_cat(Eager& e, const Tensors& in) {
  std::vector<Tensor> flat;
  for (const Tensor& tensor : in) {
    flat.push_back(e.empty({tensor.elements()}, tensor.dtype()));
  }
  op::cat(e, flat, 0);
}

template <Tensor (*operation)(Eager&, const Tensor&)>
void run_unary(Eager& e, const Tensors& in) {
  operation(e, in[0]);
}
// With another tensor or with a number.
template <Tensor (*operation)(Eager&, const Tensor&, const Tensor&),
          Tensor (*with_number)(Eager&, const Tensor&, double)>
void run_binary(Eager& e, const Tensors& in) {
  if (in.size() > 1) {
    operation(e, in[0], in[1]);
  } else {
    with_number(e, in[0], 2.0);
  }
}
constexpr auto kAdd = run_binary<op::add, op::add_scalar>;
constexpr auto kMul = run_binary<op::mul, op::mul_scalar>;
constexpr auto kDiv = run_binary<op::div, op::div_scalar>;

void run_compare(Eager& e, const Tensors& in) {
  op::compare(e, in[0], in.size() > 1 ? &in[1] : nullptr);
}
void run_where(Eager& e, const Tensors& in) { op::where(e, in[0], in[1], in[2]); }
void run_masked_fill(Eager& e, const Tensors& in) { op::masked_fill(e, in[0], in[1]); }
void run_gelu(Eager& e, const Tensors& in) { op::gelu(e, in[0], false); }
void run_pow(Eager& e, const Tensors& in) { op::pow(e, in[0], 2.0); }
void run_clamp(Eager& e, const Tensors& in) { op::clamp(e, in[0]); }
void run_copy(Eager& e, const Tensors& in) { op::copy_into(e, in[0], in[1]); }
void run_fill(Eager& e, const Tensors& in) { op::full(e, in[0].sizes(), in[0].dtype()); }

// By the names that have kernels of their own; what is made of them is not there.
constexpr std::array kKnown{
    Known{"aten::mm", 2, true, run_mm},
    Known{"aten::addmm", 3, true, run_addmm},
    Known{"aten::bmm", 2, true, run_bmm},
    Known{"aten::baddbmm", 3, true, run_baddbmm},
    Known{"aten::_scaled_mm", 2, true, run_mm},
    Known{"aten::_scaled_dot_product_flash_attention", 3, true, run_sdpa},
    Known{"aten::_scaled_dot_product_efficient_attention", 3, true, run_sdpa},
    Known{"aten::_scaled_dot_product_cudnn_attention", 3, true, run_sdpa},
    Known{"aten::_cudnn_attention_forward", 3, true, run_sdpa},
    Known{"aten::_flash_attention_forward", 3, true, run_flash},
    Known{"aten::_efficient_attention_forward", 3, true, run_flash},
    Known{"aten::_scaled_dot_product_flash_attention_for_cpu", 3, true, run_sdpa},
    Known{"aten::_scaled_dot_product_flash_attention_backward", 4, true,
          run_flash_backward<run_sdpa>, kFlashBackwardFlops, kFlashBackwardBytes},
    Known{"aten::_scaled_dot_product_efficient_attention_backward", 4, true,
          run_flash_backward<run_sdpa>, kFlashBackwardFlops, kFlashBackwardBytes},
    Known{"aten::_scaled_dot_product_cudnn_attention_backward", 4, true,
          run_flash_backward<run_sdpa>, kFlashBackwardFlops, kFlashBackwardBytes},
    Known{"aten::_flash_attention_backward", 4, true, run_flash_backward<run_flash>,
          kFlashBackwardFlops, kFlashBackwardBytes},
    Known{"aten::_efficient_attention_backward", 4, true, run_flash_backward<run_flash>,
          kFlashBackwardFlops, kFlashBackwardBytes},
    Known{"aten::threshold_backward", 2, false, run_pointwise_backward},
    Known{"aten::gelu_backward", 2, false, run_pointwise_backward},
    Known{"aten::silu_backward", 2, false, run_pointwise_backward},
    Known{"aten::sigmoid_backward", 2, false, run_pointwise_backward},
    Known{"aten::tanh_backward", 2, false, run_pointwise_backward},
    Known{"aten::_softmax_backward_data", 2, false, run_pointwise_backward},
    Known{"aten::_log_softmax_backward_data", 2, false, run_pointwise_backward},
    Known{"aten::native_layer_norm_backward", 2, false, run_pointwise_backward},
    Known{"aten::_fused_rms_norm_backward", 2, false, run_pointwise_backward},
    Known{"aten::native_batch_norm_backward", 2, false, run_pointwise_backward},
    Known{"aten::cudnn_batch_norm_backward", 2, false, run_pointwise_backward},
    Known{"aten::miopen_batch_norm_backward", 2, false, run_pointwise_backward},
    Known{"aten::native_batch_norm", 1, false, run_unary<op::relu>},
    Known{"aten::cudnn_batch_norm", 1, false, run_unary<op::relu>},
    Known{"aten::miopen_batch_norm", 1, false, run_unary<op::relu>},
    Known{"aten::native_layer_norm", 1, false, run_layer_norm},
    Known{"aten::_fused_rms_norm", 2, false, run_rms_norm},
    Known{"aten::_softmax", 1, false, run_softmax},
    Known{"aten::_log_softmax", 1, false, run_softmax},
    Known{"aten::gelu", 1, false, run_gelu},
    Known{"aten::silu", 1, false, run_unary<op::silu>},
    Known{"aten::silu_", 1, false, run_unary<op::silu>},
    Known{"aten::relu", 1, false, run_unary<op::relu>},
    Known{"aten::relu_", 1, false, run_unary<op::relu>},
    Known{"aten::clamp_min", 1, false, run_clamp},
    Known{"aten::clamp_min_", 1, false, run_clamp},
    Known{"aten::clamp", 1, false, run_clamp},
    Known{"aten::sigmoid", 1, false, run_unary<op::sigmoid>},
    Known{"aten::tanh", 1, false, run_unary<op::tanh>},
    Known{"aten::neg", 1, false, run_unary<op::neg>},
    Known{"aten::sqrt", 1, false, run_unary<op::sqrt>},
    Known{"aten::rsqrt", 1, false, run_unary<op::rsqrt>},
    Known{"aten::exp", 1, false, run_unary<op::exp>},
    Known{"aten::log", 1, false, run_unary<op::log>},
    Known{"aten::sin", 1, false, run_unary<op::sin>},
    Known{"aten::cos", 1, false, run_unary<op::cos>},
    Known{"aten::pow", 1, false, run_pow},
    Known{"aten::add", 1, false, kAdd},
    Known{"aten::add_", 1, false, kAdd},
    Known{"aten::sub", 1, false, kAdd},
    Known{"aten::sub_", 1, false, kAdd},
    Known{"aten::rsub", 1, false, kAdd},
    Known{"aten::mul", 1, false, kMul},
    Known{"aten::mul_", 1, false, kMul},
    Known{"aten::div", 1, false, kDiv},
    Known{"aten::div_", 1, false, kDiv},
    Known{"aten::eq", 1, false, run_compare},
    Known{"aten::ne", 1, false, run_compare},
    Known{"aten::lt", 1, false, run_compare},
    Known{"aten::le", 1, false, run_compare},
    Known{"aten::gt", 1, false, run_compare},
    Known{"aten::ge", 1, false, run_compare},
    Known{"aten::where", 3, false, run_where},
    Known{"aten::masked_fill", 2, false, run_masked_fill},
    Known{"aten::masked_fill_", 2, false, run_masked_fill},
    Known{"aten::copy_", 2, false, run_copy},
    Known{"aten::fill_", 1, false, run_fill},
    Known{"aten::zero_", 1, false, run_fill},
    Known{"aten::cat", 1, false, run_cat},
    Known{"aten::embedding", 2, false, run_embedding},
    Known{"onnx::MatMul", 2, true, run_matmul},
    Known{"onnx::FusedMatMul", 2, true, run_matmul},
    Known{"onnx::Gemm", 2, true, run_gemm},
    Known{"aten::sum", 1, false, run_reduction},
    Known{"aten::mean", 1, false, run_reduction},
};

// As profilers write types.
std::optional<DType> dtype_of(std::string_view type) {
  struct Named {
    std::string_view name;
    DType dtype;
  };
  constexpr std::array kNames{
      Named{"float", DType::f32}, Named{"double", DType::f64}, Named{"c10::Half", DType::f16},
      Named{"c10::BFloat16", DType::bf16}, Named{"c10::Float8_e4m3fn", DType::f8},
      Named{"c10::Float8_e5m2", DType::f8}, Named{"c10::Float8_e4m3fnuz", DType::f8},
      Named{"int", DType::i32}, Named{"long int", DType::i64}, Named{"long", DType::i64},
      Named{"longint", DType::i64}, Named{"short", DType::i16}, Named{"bool", DType::boolean},
      Named{"unsigned char", DType::u8}, Named{"unsignedchar", DType::u8},
      Named{"signed char", DType::i8}, Named{"signedchar", DType::i8},
      // And ONNX Runtime's.
      Named{"float16", DType::f16}, Named{"bfloat16", DType::bf16}, Named{"int32", DType::i32},
      Named{"int64", DType::i64}, Named{"int8", DType::i8}, Named{"uint8", DType::u8}};
  for (const Named& named : kNames) {
    if (named.name == type) return named.dtype;
  }
  return std::nullopt;
}

std::optional<std::vector<int64_t>> sizes_of(const text::Json& json) {
  std::vector<int64_t> sizes;
  for (const text::Json& item : json.items()) {
    if (!item.is_integer()) return std::nullopt;
    sizes.push_back(item.as_int());
  }
  return sizes;
}

bool is_list(const text::Json& json) { return json.kind() == text::Json::Kind::array; }

// A tensor where there are sizes and a type, else none: numbers and lists of numbers have no type.
bool append(const text::Json& shape, std::string_view type, std::vector<RecordedInput>& inputs) {
  if (!is_list(shape)) return false;
  const bool is_nested = !shape.items().empty() && is_list(shape.items().front());
  if (is_nested) {  // a list of tensors; most profilers do not say its type
    for (const text::Json& item : shape.items()) {
      if (!is_list(item)) return false;
      auto sizes = sizes_of(item);
      if (!sizes || inputs.size() == kMostInputs) return false;
      inputs.push_back({std::move(*sizes), dtype_of(type)});
    }
    return true;
  }
  auto sizes = sizes_of(shape);
  if (!sizes || inputs.size() == kMostInputs) return false;
  inputs.push_back({std::move(*sizes), dtype_of(type)});
  return true;
}

// Nothing where what is written is another size: of a transposed operand the record says nothing.
std::optional<timing::GemmShape> shape_of(const Tensor& first, const Tensor& second,
                                          double written_bytes) {
  const int64_t k = first.rank() > 0 ? first.size(-1) : 0;
  if (k <= 0) return std::nullopt;
  const timing::GemmShape shape{.m = first.elements() / k, .n = second.elements() / k, .k = k};
  const double written = static_cast<double>(shape.m) * static_cast<double>(shape.n) *
                         static_cast<double>(op::element_size(first.dtype()));
  if (shape.m <= 0 || shape.n <= 0 || written != written_bytes) return std::nullopt;
  return shape;
}

// What the third list says of numbers, each a text: "[2,2]", "1", "False". With lists of tensors
// among the inputs places are others; no convolution has one.
void add_numbers(std::string_view list, std::vector<RecordedInput>& inputs) {
  const Result<text::Json> json = text::parse_json(list, "numbers");
  if (!json || !is_list(*json) || json->items().size() != inputs.size()) return;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const text::Json& item = json->items()[i];
    if (!item.is_string() || item.as_string().empty()) continue;
    std::string words = text::lower(item.as_string());
    for (const auto& [word, number] : {std::pair("true", "1"), std::pair("false", "0")}) {
      for (size_t at = words.find(word); at != std::string::npos; at = words.find(word)) {
        words.replace(at, std::string_view(word).size(), number);
      }
    }
    const Result<text::Json> value = text::parse_json(words, "numbers");
    if (!value) continue;
    if (value->is_integer()) inputs[i].numbers = {value->as_int()};
    if (!is_list(*value)) continue;
    if (auto numbers = sizes_of(*value)) inputs[i].numbers = std::move(*numbers);
  }
}

bool is_sane(const RecordedInput& input) {
  return input.sizes.size() < op::kDimsMax &&
         std::all_of(input.sizes.begin(), input.sizes.end(),
                     [](int64_t size) { return size > 0 && size <= kLargestSize; });
}

}  // namespace

bool has_rate(DType dtype) {
  constexpr std::array kTypes{DType::f32, DType::f16, DType::bf16, DType::f8, DType::i8, DType::u8};
  return std::find(kTypes.begin(), kTypes.end(), dtype) != kTypes.end();
}

std::optional<Tensor> symbolic(Eager& eager, const RecordedInput& input) {
  if (!input.dtype || !is_sane(input)) return std::nullopt;
  op::Dims sizes;
  for (const int64_t size : input.sizes) sizes.push_back(size);
  return eager.empty(sizes, *input.dtype);
}

std::optional<std::vector<RecordedInput>> parse_inputs(std::string_view detail) {
  const size_t gap = detail.find(' ');
  if (gap == std::string_view::npos) return std::nullopt;
  const size_t behind = std::min(detail.find(' ', gap + 1), detail.size());
  const Result<text::Json> shapes = text::parse_json(detail.substr(0, gap), "shapes");
  const Result<text::Json> types =
      text::parse_json(detail.substr(gap + 1, behind - gap - 1), "types");
  if (!shapes || !types || !is_list(*shapes) || !is_list(*types)) return std::nullopt;
  if (types->items().size() != shapes->items().size()) return std::nullopt;
  std::vector<RecordedInput> inputs;
  for (size_t i = 0; i < shapes->items().size(); ++i) {
    const text::Json& type = types->items()[i];
    if (!type.is_string() || !append(shapes->items()[i], type.as_string(), inputs)) {
      return std::nullopt;
    }
  }
  if (behind < detail.size()) add_numbers(detail.substr(behind + 1), inputs);
  return inputs;
}

std::optional<OperatorWork> work_of_operator(std::string_view name,
                                             const std::vector<RecordedInput>& inputs) {
  if (is_convolution(name)) return work_of_convolution(name, inputs);
  const auto* known = std::find_if(kKnown.begin(), kKnown.end(),
                                   [&](const Known& one) { return one.name == name; });
  if (known == kKnown.end()) return std::nullopt;
  WorkSum sum;
  Eager eager(sum, {});
  eager.set_grad_enabled(false);
  OperatorWork work;
  work.is_product = known->is_product;
  try {
    Tensors tensors;
    for (const RecordedInput& input : inputs) {
      if (!input.dtype) continue;
      auto tensor = symbolic(eager, input);
      if (!tensor) return std::nullopt;
      tensors.push_back(std::move(*tensor));
    }
    if (tensors.size() < known->tensors) return std::nullopt;
    const bool has_bias = name == "aten::addmm" || name == "aten::baddbmm";
    const Tensor& first = tensors[has_bias ? 1 : 0];
    work.dtype = first.dtype();
    if (work.is_product && !has_rate(work.dtype)) return std::nullopt;
    work.first_elements = static_cast<double>(first.elements());
    known->run(eager, tensors);
    const bool is_linear = name == "aten::mm" || name == "aten::addmm" ||
                           (name.starts_with("onnx::") && tensors[1].rank() == 2);
    if (is_linear) work.linear = shape_of(first, tensors[has_bias ? 2 : 1], sum.written);
  } catch (const op::Impossible&) {
    return std::nullopt;  // shapes that the operator does not take
  }
  work.flops = known->flops_factor * sum.flops;
  work.bytes = known->bytes_factor * sum.bytes;
  work.written_bytes = known->bytes_factor * sum.written;
  return work;
}

const std::optional<OperatorWork>& OperatorCounts::of(uint32_t operation) {
  const formats::TraceEvent& event = trace_.events[operation];
  const auto [known, is_new] = works_.try_emplace({event.name, event.detail});
  if (is_new && event.detail != formats::kNone) {
    const auto inputs = parse_inputs(trace_.names.at(event.detail));
    if (inputs) known->second = work_of_operator(trace_.names.at(event.name), *inputs);
  }
  return known->second;
}

device::Rate rate_of_work(const OperatorWork& work, std::string_view kernel) {
  switch (work.dtype) {
    case DType::f16:
      return device::Rate::fp16;
    case DType::bf16:
      return device::Rate::bf16;
    case DType::f8:
      return device::Rate::fp8;
    case DType::i8:
    case DType::u8:
      return device::Rate::int8;
    default:
      break;
  }
  for (const std::string_view sign : {"tf32", "s1688gemm", "TF32"}) {
    if (kernel.find(sign) != std::string_view::npos) return device::Rate::tf32;
  }
  return device::Rate::fp32;
}

}  // namespace headroom::ops
