// Operators of ONNX that multiply matrices: ONNX's own and those that ONNX Runtime puts in their
// place (domain com.microsoft). Their definitions: docs/Operators.md of onnx/onnx,
// docs/ContribOperators.md of microsoft/onnxruntime.
#include <algorithm>
#include <array>

#include "model/onnx_call.h"

namespace headroom::model {
namespace {

using op::DType;
using op::require;

// The last two dimensions, of which a factor may lie the other way round.
struct Factor {
  Sizes outer;
  int64_t rows = 1;
  int64_t columns = 1;
};

Factor factor_of(const OnnxValue& value, bool is_transposed, bool is_right) {
  Factor factor;
  Sizes sizes = value.sizes;
  require(!sizes.empty(), "a product with a number");
  if (sizes.size() == 1) {
    (is_right ? factor.rows : factor.columns) = sizes[0];
    return factor;
  }
  factor.columns = sizes.back();
  factor.rows = sizes[sizes.size() - 2];
  if (is_transposed) std::swap(factor.rows, factor.columns);
  sizes.resize(sizes.size() - 2);
  factor.outer = std::move(sizes);
  return factor;
}

int64_t product_of(const Sizes& sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

// Of operands `a` and `b`, computed in `type`; `result`: the type of what comes out.
void multiply(OnnxCall& call, size_t a, size_t b, DType type, DType result,
              bool transposes_a = false, bool transposes_b = false) {
  const Factor left = factor_of(call.in(a), transposes_a, false);
  const Factor right = factor_of(call.in(b), transposes_b, true);
  require(left.columns == right.rows, "sizes of a product that do not fit");
  Sizes sizes = broadcast(left.outer, right.outer);
  Sizes whole = sizes;
  whole.push_back(left.rows);
  whole.push_back(right.columns);
  check_sizes(whole);
  const bool is_shared = product_of(right.outer) == 1;  // one matrix for all
  OnnxWork work;
  work.count = is_shared ? 1 : product_of(sizes);
  work.m = is_shared ? product_of(sizes) * left.rows : left.rows;
  work.n = right.columns;
  work.k = left.columns;
  if (call.in(a).rank() > 1) sizes.push_back(left.rows);
  if (call.in(b).rank() > 1) sizes.push_back(right.columns);
  call.make(0, std::move(sizes), result);
  work.type = type;
  work.has_weight = call.in(b).is_weight;
  work.flops = 2.0 * static_cast<double>(work.count) * static_cast<double>(work.m) *
               static_cast<double>(work.n) * static_cast<double>(work.k);
  call.launch_product(work);
}

void run_matmul(OnnxCall& call) { multiply(call, 0, 1, call.in(0).dtype, call.in(0).dtype); }
void run_fused_matmul(OnnxCall& call) {
  require(call.integer("transBatchA", 0) == 0 && call.integer("transBatchB", 0) == 0,
          "a product over the first dimensions");
  multiply(call, 0, 1, call.in(0).dtype, call.in(0).dtype, call.integer("transA", 0) != 0,
           call.integer("transB", 0) != 0);
}
void run_matmul_integer(OnnxCall& call) { multiply(call, 0, 1, call.in(0).dtype, DType::i32); }
void run_matmul_integer_to_float(OnnxCall& call) {
  multiply(call, 0, 1, call.in(0).dtype, call.in(2).dtype);
}
// The first operand is quantized within, to the type of the second.
void run_dynamic_quantize_matmul(OnnxCall& call) {
  multiply(call, 0, 1, call.in(1).dtype, call.in(0).dtype);
}
void run_qlinear_matmul(OnnxCall& call) {
  multiply(call, 0, 3, call.in(0).dtype, call.in(0).dtype);
}

// Weights of a few bits, packed: K and N say the sizes.
void run_matmul_bits(OnnxCall& call) {
  const OnnxValue& input = call.in(0);
  const int64_t k = call.integer("K", 0);
  const int64_t n = call.integer("N", 0);
  require(input.rank() > 0 && k > 0 && n > 0 && input.sizes.back() == k,
          "sizes of a product that do not fit");
  Sizes sizes = input.sizes;
  sizes.back() = n;
  call.make(0, std::move(sizes), input.dtype);
  OnnxWork work;
  work.m = input.elements() / k;
  work.n = n;
  work.k = k;
  work.type = input.dtype;
  work.flops = 2.0 * static_cast<double>(input.elements()) * static_cast<double>(n);
  call.launch_product(work);
}

// "bij,bjk->bik": the sizes of its letters, and which operand has them.
struct Letters {
  std::array<int64_t, 128> sizes{};
  std::array<unsigned, 128> operands{};  // bits: the first, the second, another, the result
};
constexpr unsigned kFirst = 1;
constexpr unsigned kSecond = 2;
constexpr unsigned kOther = 4;
constexpr unsigned kResult = 8;

Letters letters_of(const OnnxCall& call, std::string_view operands) {
  Letters letters;
  size_t input = 0;
  size_t place = 0;
  for (const char letter : operands) {
    if (letter == ' ') continue;
    if (letter == ',') {
      require(place == call.in(input).rank(), "an equation of other dimensions");
      ++input;
      place = 0;
      continue;
    }
    const bool is_letter = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
    require(is_letter && place < call.in(input).rank(), "an equation that is not understood");
    const auto at = static_cast<size_t>(letter);
    letters.sizes[at] = call.in(input).sizes[place++];
    letters.operands[at] |= input == 0 ? kFirst : input == 1 ? kSecond : kOther;
  }
  require(place == call.in(input).rank(), "an equation of other dimensions");
  return letters;
}

// Every letter is a loop. Of two operands the letters of both and the result are the batch, those
// of one and the result its rows or columns; over the rest is summed.
void run_einsum(OnnxCall& call) {
  const std::string_view equation = call.text("equation");
  const size_t arrow = equation.find("->");
  require(arrow != std::string_view::npos, "an equation without a result");
  Letters letters = letters_of(call, equation.substr(0, arrow));
  Sizes result;
  for (const char letter : equation.substr(arrow + 2)) {
    if (letter == ' ') continue;
    const auto at = static_cast<size_t>(static_cast<unsigned char>(letter));
    require(at < letters.sizes.size() && letters.operands[at] != 0, "a letter of no operand");
    result.push_back(letters.sizes[at]);
    letters.operands[at] |= kResult;
  }
  Sizes loops;
  OnnxWork work;
  for (size_t i = 0; i < letters.sizes.size(); ++i) {
    if (letters.operands[i] == 0) continue;
    loops.push_back(letters.sizes[i]);
    check_sizes(loops);
    const unsigned operands = letters.operands[i];
    int64_t& size = (operands & kResult) == 0         ? work.k
                    : operands == (kFirst | kResult)  ? work.m
                    : operands == (kSecond | kResult) ? work.n
                                                      : work.count;
    size *= letters.sizes[i];
  }
  check_sizes(result);
  call.make(0, result, call.in(0).dtype);
  if (call.input_count() == 1) return call.launch(static_cast<double>(product_of(loops)));
  work.type = call.in(0).dtype;
  work.has_weight = call.in(1).is_weight;
  work.flops = 2.0 * static_cast<double>(product_of(loops));
  call.launch_product(work);
}

constexpr NamedOnnxOperator kOperators[] = {
    {"MatMul", run_matmul},
    {"Gemm", run_fused_matmul},
    {"FusedMatMul", run_fused_matmul},
    {"FusedGemm", run_fused_matmul},
    {"MatMulInteger", run_matmul_integer},
    {"MatMulIntegerToFloat", run_matmul_integer_to_float},
    {"DynamicQuantizeMatMul", run_dynamic_quantize_matmul},
    {"QLinearMatMul", run_qlinear_matmul},
    {"MatMulNBits", run_matmul_bits},
    {"MatMulBnb4", run_matmul_bits},
    {"Einsum", run_einsum},
};

}  // namespace

OnnxOperator find_onnx_product(std::string_view operation) {
  return find_named(kOperators, operation);
}

}  // namespace headroom::model
