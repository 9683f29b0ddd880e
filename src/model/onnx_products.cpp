// Operators of ONNX that multiply matrices: products, convolutions, attention; ONNX's own and those
// that ONNX Runtime puts in their place (domain com.microsoft). Their definitions:
// docs/Operators.md of onnx/onnx, docs/ContribOperators.md of microsoft/onnxruntime.
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

// Of operands `a` and `b`; `result`: the type of what comes out.
void multiply(OnnxCall& call, size_t a, size_t b, DType result, bool transposes_a = false,
              bool transposes_b = false) {
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
  work.type = call.in(a).dtype;
  work.has_weight = call.in(b).is_weight;
  work.flops = 2.0 * static_cast<double>(work.count) * static_cast<double>(work.m) *
               static_cast<double>(work.n) * static_cast<double>(work.k);
  call.launch_product(work);
}

void run_matmul(OnnxCall& call) { multiply(call, 0, 1, call.in(0).dtype); }
void run_fused_matmul(OnnxCall& call) {
  require(call.integer("transBatchA", 0) == 0 && call.integer("transBatchB", 0) == 0,
          "a product over the first dimensions");
  multiply(call, 0, 1, call.in(0).dtype, call.integer("transA", 0) != 0,
           call.integer("transB", 0) != 0);
}
void run_matmul_integer(OnnxCall& call) { multiply(call, 0, 1, DType::i32); }
void run_matmul_integer_to_float(OnnxCall& call) { multiply(call, 0, 1, call.in(2).dtype); }
// The first operand is quantized within.
void run_dynamic_quantize_matmul(OnnxCall& call) { multiply(call, 0, 1, call.in(0).dtype); }
void run_qlinear_matmul(OnnxCall& call) { multiply(call, 0, 3, call.in(0).dtype); }

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

// "bij,bjk->bik": every letter is a loop.
void run_einsum(OnnxCall& call) {
  const std::string_view equation = call.text("equation");
  std::array<int64_t, 128> sizes{};
  size_t input = 0;
  size_t place = 0;
  size_t at = 0;
  for (; at < equation.size() && equation[at] != '-'; ++at) {
    const char letter = equation[at];
    if (letter == ' ') continue;
    if (letter == ',') {
      ++input;
      place = 0;
      continue;
    }
    const bool is_letter = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
    require(is_letter && place < call.in(input).rank(), "an equation that is not understood");
    sizes[static_cast<size_t>(letter)] = call.in(input).sizes[place++];
  }
  require(equation.substr(at).starts_with("->"), "an equation without a result");
  Sizes result;
  for (const char letter : equation.substr(at + 2)) {
    if (letter == ' ') continue;
    require(letter > 0 && sizes[static_cast<size_t>(letter)] > 0, "a letter of no operand");
    result.push_back(sizes[static_cast<size_t>(letter)]);
  }
  Sizes loops;
  for (const int64_t size : sizes) {
    if (size > 0) loops.push_back(size);
  }
  check_sizes(loops);
  call.make(0, result, call.in(0).dtype);
  OnnxWork work;
  work.m = std::max<int64_t>(product_of(result), 1);
  work.k = std::max<int64_t>(product_of(loops) / work.m, 1);
  work.type = call.in(0).dtype;
  work.has_weight = call.has(1) && call.in(1).is_weight;
  work.flops = 2.0 * static_cast<double>(product_of(loops));
  call.launch_product(work);
}

// One dimension of space that a window goes over.
struct Window {
  int64_t kernel = 1, stride = 1, dilation = 1, before = 0, after = 0;
  [[nodiscard]] int64_t reach() const { return (kernel - 1) * dilation + 1; }
};

int64_t nth(const std::optional<Sizes>& values, size_t i, int64_t otherwise) {
  return values && i < values->size() ? (*values)[i] : otherwise;
}

constexpr int64_t kMostWindow = int64_t{1} << 30;

std::vector<Window> windows_of(const OnnxCall& call, const Sizes& kernel) {
  const size_t none = call.input_count();
  const auto strides = call.integers("strides", none);
  const auto dilations = call.integers("dilations", none);
  const auto pads = call.integers("pads", none);
  std::vector<Window> windows(kernel.size());
  for (size_t i = 0; i < windows.size(); ++i) {
    Window& window = windows[i];
    window = {kernel[i], nth(strides, i, 1), nth(dilations, i, 1), nth(pads, i, 0),
              nth(pads, i + kernel.size(), 0)};
    for (const int64_t value : {window.kernel, window.stride, window.dilation}) {
      require(value >= 1 && value <= kMostWindow, "a window that cannot be");
    }
    require(std::abs(window.before) <= kMostWindow && std::abs(window.after) <= kMostWindow,
            "a border that cannot be");
  }
  return windows;
}

int64_t places(const Window& window, int64_t room, std::string_view auto_pad, bool rounds_up) {
  if (auto_pad.starts_with("SAME")) return (room + window.stride - 1) / window.stride;
  const int64_t border = auto_pad == "VALID" ? 0 : window.before + window.after;
  const int64_t left = room + border - window.reach();
  require(left >= 0, "a window larger than what it goes over");
  return (left + (rounds_up ? window.stride - 1 : 0)) / window.stride + 1;
}

// Input [batch, channels, space...], weight [out, channels / groups, kernel...].
void convolve(OnnxCall& call, const OnnxValue& input, const OnnxValue& weight, DType result) {
  require(input.rank() >= 3 && weight.rank() == input.rank(),
          "a convolution of sizes that do not fit");
  const int64_t groups = call.integer("group", 1);
  require(groups >= 1 && input.sizes[1] % groups == 0 &&
              weight.sizes[1] == input.sizes[1] / groups && weight.sizes[0] >= 1,
          "a convolution of channels that do not fit");
  const auto windows = windows_of(call, Sizes(weight.sizes.begin() + 2, weight.sizes.end()));
  Sizes sizes{input.sizes[0], weight.sizes[0]};
  int64_t space = 1;
  for (size_t i = 0; i < windows.size(); ++i) {
    sizes.push_back(places(windows[i], input.sizes[i + 2], call.text("auto_pad"), false));
    check_sizes(sizes);
    space *= sizes.back();
  }
  call.make(0, sizes, result);
  OnnxWork work;
  work.count = groups;
  work.m = input.sizes[0] * space;
  work.n = std::max<int64_t>(weight.sizes[0] / groups, 1);
  work.k = weight.elements() / weight.sizes[0];
  work.type = input.dtype;
  work.has_weight = weight.is_weight;
  work.flops =
      2.0 * static_cast<double>(input.sizes[0] * space) * static_cast<double>(weight.elements());
  call.launch_product(work);
}

void run_conv(OnnxCall& call) { convolve(call, call.in(0), call.in(1), call.in(0).dtype); }
void run_conv_integer(OnnxCall& call) { convolve(call, call.in(0), call.in(1), DType::i32); }
void run_qlinear_conv(OnnxCall& call) { convolve(call, call.in(0), call.in(3), call.in(0).dtype); }

void run_conv_transpose(OnnxCall& call) {
  const OnnxValue& input = call.in(0);
  const OnnxValue& weight = call.in(1);
  require(input.rank() >= 3 && weight.rank() == input.rank() && weight.sizes[0] == input.sizes[1],
          "a convolution of sizes that do not fit");
  const int64_t groups = call.integer("group", 1);
  require(groups >= 1 && groups <= kMostWindow && weight.sizes[0] >= 1, "channels that do not fit");
  const auto windows = windows_of(call, Sizes(weight.sizes.begin() + 2, weight.sizes.end()));
  const auto more = call.integers("output_padding", call.input_count());
  const auto asked = call.integers("output_shape", call.input_count());
  Sizes sizes{input.sizes[0], weight.sizes[1]};
  check_sizes({weight.sizes[1], groups});
  sizes[1] *= groups;
  for (size_t i = 0; i < windows.size(); ++i) {
    const Window& window = windows[i];
    check_sizes({input.sizes[i + 2], window.stride});
    require(std::abs(nth(more, i, 0)) <= kMostWindow, "a border that cannot be");
    const int64_t made = (input.sizes[i + 2] - 1) * window.stride + nth(more, i, 0) +
                         window.reach() - window.before - window.after;
    sizes.push_back(nth(asked, i, made));
  }
  call.make(0, std::move(sizes), input.dtype);
  OnnxWork work;
  work.m = std::max<int64_t>(input.elements() / std::max<int64_t>(input.sizes[1], 1), 1);
  work.k = std::max<int64_t>(input.sizes[1], 1);
  work.n = std::max<int64_t>(weight.elements() / weight.sizes[0], 1);
  work.type = input.dtype;
  work.has_weight = weight.is_weight;
  work.flops = 2.0 * static_cast<double>(input.elements()) *
               static_cast<double>(weight.elements()) / static_cast<double>(weight.sizes[0]);
  call.launch_product(work);
}

void run_pool(OnnxCall& call) {
  const OnnxValue& input = call.in(0);
  const auto kernel = call.integers("kernel_shape", call.input_count());
  require(kernel && kernel->size() + 2 == input.rank(), "a window of other dimensions");
  Sizes sizes{input.sizes[0], input.sizes[1]};
  double window = 1;
  const auto windows = windows_of(call, *kernel);
  for (size_t i = 0; i < windows.size(); ++i) {
    sizes.push_back(places(windows[i], input.sizes[i + 2], call.text("auto_pad"),
                           call.integer("ceil_mode", 0) != 0));
    window *= static_cast<double>(windows[i].kernel);
  }
  call.make(0, sizes, input.dtype);
  call.make(1, sizes, DType::i64);
  if (call.output_count() > 0) {
    call.launch(window * static_cast<double>(call.out(0).elements()));
  }
}

void run_global_pool(OnnxCall& call) {
  Sizes sizes = call.in(0).sizes;
  require(sizes.size() >= 3, "nothing to pool");
  std::fill(sizes.begin() + 2, sizes.end(), 1);
  call.make(0, std::move(sizes), call.in(0).dtype);
  call.launch(static_cast<double>(call.in(0).elements()));
}

// What attention works on, as one of its operators has it.
struct Heads {
  int64_t batch = 1, heads = 1, kv_heads = 1, queries = 1, keys = 1, size = 1;
  bool is_causal = false;
};

void attend(OnnxCall& call, const Heads& of, DType type) {
  for (const int64_t size : {of.batch, of.heads, of.kv_heads, of.queries, of.keys, of.size}) {
    require(size >= 1, "attention over nothing");
  }
  check_sizes({of.batch, of.heads, of.queries, of.size});
  check_sizes({of.batch, of.heads, of.keys, of.size});
  OnnxWork work;
  work.kind = OnnxWorkKind::attention;
  work.count = of.batch;
  work.heads = of.heads;
  work.kv_heads = of.kv_heads;
  work.m = of.queries;
  work.k = of.keys;
  work.n = of.size;
  work.type = type;
  work.flops = 4.0 * static_cast<double>(of.batch) * static_cast<double>(of.heads) *
               static_cast<double>(of.queries) * static_cast<double>(of.keys) *
               static_cast<double>(of.size);
  if (of.is_causal && of.queries == of.keys) work.flops /= 2;
  call.launch_product(work);
}

int64_t head_size(int64_t width, int64_t heads) {
  require(heads >= 1 && width % heads == 0, "heads that do not fit");
  return width / heads;
}

// com.microsoft: query, key and value of [batch, sequence, width], by the head or together.
void run_multi_head_attention(OnnxCall& call) {
  const OnnxValue& query = call.in(0);
  require(query.rank() == 3 && call.has(1) && call.in(1).rank() == 3,
          "attention of packed or cached operands");
  const int64_t heads = call.integer("num_heads", 0);
  const int64_t kv = std::max<int64_t>(call.integer("kv_num_heads", heads), 1);
  const Heads of{query.sizes[0],
                 heads,
                 kv,
                 query.sizes[1],
                 call.in(1).sizes[1],
                 head_size(query.sizes[2], heads),
                 call.integer("unidirectional", 0) != 0};
  call.make(0, query.sizes, query.dtype);
  for (size_t i = 1; i < call.output_count(); ++i) {
    call.make(i, {of.batch, kv, of.keys, of.size}, query.dtype);
  }
  attend(call, of, query.dtype);
}

void run_group_query_attention(OnnxCall& call) {
  const OnnxValue& query = call.in(0);
  require(query.rank() == 3 && call.has(1) && call.in(1).rank() == 3,
          "attention of packed operands");
  const int64_t heads = call.integer("num_heads", 0);
  const int64_t kv = call.integer("kv_num_heads", 0);
  const int64_t past = call.has(3) && call.in(3).rank() == 4 ? call.in(3).sizes[2] : 0;
  const int64_t keys = past + call.in(1).sizes[1];
  const Heads of{
      query.sizes[0], heads, kv, query.sizes[1], keys, head_size(query.sizes[2], heads), true};
  call.make(0, query.sizes, query.dtype);
  call.make(1, {of.batch, kv, keys, of.size}, query.dtype);
  call.make(2, {of.batch, kv, keys, of.size}, query.dtype);
  attend(call, of, query.dtype);
}

// com.microsoft's projects first: input [batch, sequence, width], weight [width, 3 x hidden].
void run_projected_attention(OnnxCall& call) {
  const OnnxValue& input = call.in(0);
  const OnnxValue& weight = call.in(1);
  require(input.rank() == 3 && weight.rank() == 2 && weight.sizes[1] % 3 == 0 &&
              input.sizes[2] == weight.sizes[0],
          "sizes that do not fit");
  const int64_t hidden = weight.sizes[1] / 3;
  const int64_t heads = call.integer("num_heads", 0);
  const Heads of{input.sizes[0],
                 heads,
                 heads,
                 input.sizes[1],
                 input.sizes[1],
                 head_size(hidden, heads),
                 call.integer("unidirectional", 0) != 0};
  call.make(0, {input.sizes[0], input.sizes[1], hidden}, input.dtype);
  call.make(1, {2, of.batch, heads, of.keys, of.size}, input.dtype);
  OnnxWork work;
  work.m = input.sizes[0] * input.sizes[1];
  work.k = input.sizes[2];
  work.n = weight.sizes[1];
  work.type = input.dtype;
  work.has_weight = weight.is_weight;
  work.flops = 2.0 * static_cast<double>(input.elements()) * static_cast<double>(work.n);
  call.launch_product(work);
  attend(call, of, input.dtype);
}

// ONNX's own, of opset 23: [batch, heads, sequence, size], or three dimensions and q_num_heads.
void run_attention(OnnxCall& call) {
  if (call.node().domain == "com.microsoft") return run_projected_attention(call);
  const OnnxValue& query = call.in(0);
  const OnnxValue& key = call.in(1);
  require(query.rank() == key.rank() && (query.rank() == 4 || query.rank() == 3),
          "sizes that do not fit");
  const bool is_by_head = query.rank() == 4;
  const int64_t heads = is_by_head ? query.sizes[1] : call.integer("q_num_heads", 0);
  const int64_t kv = is_by_head ? key.sizes[1] : call.integer("kv_num_heads", 0);
  const size_t sequence = is_by_head ? 2 : 1;
  const Heads of{query.sizes[0],
                 heads,
                 kv,
                 query.sizes[sequence],
                 key.sizes[sequence],
                 is_by_head ? query.sizes[3] : head_size(query.sizes[2], heads),
                 call.integer("is_causal", 0) != 0};
  call.make(0, query.sizes, query.dtype);
  attend(call, of, query.dtype);
}

struct Named {
  std::string_view name;
  OnnxOperator run;
};
constexpr std::array kOperators{Named{"MatMul", run_matmul},
                                Named{"Gemm", run_fused_matmul},
                                Named{"FusedMatMul", run_fused_matmul},
                                Named{"FusedGemm", run_fused_matmul},
                                Named{"MatMulInteger", run_matmul_integer},
                                Named{"MatMulIntegerToFloat", run_matmul_integer_to_float},
                                Named{"DynamicQuantizeMatMul", run_dynamic_quantize_matmul},
                                Named{"QLinearMatMul", run_qlinear_matmul},
                                Named{"MatMulNBits", run_matmul_bits},
                                Named{"MatMulBnb4", run_matmul_bits},
                                Named{"Einsum", run_einsum},
                                Named{"Conv", run_conv},
                                Named{"FusedConv", run_conv},
                                Named{"ConvInteger", run_conv_integer},
                                Named{"QLinearConv", run_qlinear_conv},
                                Named{"ConvTranspose", run_conv_transpose},
                                Named{"MaxPool", run_pool},
                                Named{"AveragePool", run_pool},
                                Named{"LpPool", run_pool},
                                Named{"GlobalAveragePool", run_global_pool},
                                Named{"GlobalMaxPool", run_global_pool},
                                Named{"MultiHeadAttention", run_multi_head_attention},
                                Named{"GroupQueryAttention", run_group_query_attention},
                                Named{"Attention", run_attention}};

}  // namespace

OnnxOperator find_onnx_product(std::string_view operation) {
  for (const Named& one : kOperators) {
    if (one.name == operation) return one.run;
  }
  return nullptr;
}

}  // namespace headroom::model
