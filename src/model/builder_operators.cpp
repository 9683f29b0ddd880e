// GraphBuilder's operators: each names its kind and packs its attributes as the interpreter reads
// them (step/interpreter.cpp).
#include "model/builder.h"

namespace headroom::model {

namespace {

template <typename... Vars>
std::vector<Var> inputs(Vars... vars) {
  std::vector<Var> list;
  list.reserve(sizeof...(vars));
  (list.push_back(std::move(vars)), ...);
  return list;
}

Attributes ints(const Numbers& values) {
  Attributes attributes;
  attributes.ints = values;
  return attributes;
}
Attributes number(double value) {
  Attributes attributes;
  attributes.number = value;
  attributes.flag = true;  // the second operand is the number
  return attributes;
}
Attributes in_place(const Numbers& values = {}) {
  Attributes attributes = ints(values);
  attributes.flag = true;
  return attributes;
}
Attributes typed(std::vector<int64_t> values, std::optional<DType> dtype) {
  Attributes attributes = ints(std::move(values));
  attributes.dtype = dtype;
  return attributes;
}
Attributes reduced(std::vector<int64_t> dims, bool keepdim) {
  Attributes attributes = ints(std::move(dims));
  attributes.flag = keepdim;
  return attributes;
}

}  // namespace

Var GraphBuilder::view(Var x, std::vector<int64_t> sizes) {
  return apply(OpKind::view, inputs(std::move(x)), ints(std::move(sizes)));
}
Var GraphBuilder::reshape(Var x, std::vector<int64_t> sizes) {
  return apply(OpKind::reshape, inputs(std::move(x)), ints(std::move(sizes)));
}
Var GraphBuilder::transpose(Var x, int dim0, int dim1) {
  return apply(OpKind::transpose, inputs(std::move(x)), ints({dim0, dim1}));
}
Var GraphBuilder::permute(Var x, std::vector<int64_t> order) {
  return apply(OpKind::permute, inputs(std::move(x)), ints(std::move(order)));
}
Var GraphBuilder::expand(Var x, std::vector<int64_t> sizes) {
  return apply(OpKind::expand, inputs(std::move(x)), ints(std::move(sizes)));
}
Var GraphBuilder::unsqueeze(Var x, int dim) {
  return apply(OpKind::unsqueeze, inputs(std::move(x)), ints({dim}));
}
Var GraphBuilder::squeeze(Var x, int dim) {
  return apply(OpKind::squeeze, inputs(std::move(x)), ints({dim}));
}
Var GraphBuilder::slice(Var x, int dim, int64_t start, int64_t end, int64_t step) {
  return apply(OpKind::slice, inputs(std::move(x)), ints({dim, start, end, step}));
}
Var GraphBuilder::select(Var x, int dim, int64_t index) {
  return apply(OpKind::select, inputs(std::move(x)), ints({dim, index}));
}
std::vector<Var> GraphBuilder::split(Var x, std::vector<int64_t> sizes, int dim) {
  const size_t parts = sizes.size();
  sizes.push_back(dim);
  return apply_many(OpKind::split, inputs(std::move(x)), parts, ints(std::move(sizes)));
}
Var GraphBuilder::contiguous(Var x) { return apply(OpKind::contiguous, inputs(std::move(x))); }
Var GraphBuilder::detach(Var x) { return apply(OpKind::detach, inputs(std::move(x))); }
Var GraphBuilder::require_grad(Var x) { return apply(OpKind::require_grad, inputs(std::move(x))); }
Var GraphBuilder::dtype_of(Var x) { return apply(OpKind::dtype_of, inputs(std::move(x))); }
Var GraphBuilder::view_as_real(Var x) { return apply(OpKind::view_as_real, inputs(std::move(x))); }
Var GraphBuilder::view_as_complex(Var x) {
  return apply(OpKind::view_as_complex, inputs(std::move(x)));
}
Var GraphBuilder::polar(Var radius, Var angle) {
  return apply(OpKind::polar, inputs(std::move(radius), std::move(angle)));
}
Var GraphBuilder::clone(Var x) { return apply(OpKind::clone, inputs(std::move(x))); }
Var GraphBuilder::to(Var x, DType dtype) {
  return apply(OpKind::cast, inputs(std::move(x)), typed({}, dtype));
}
Var GraphBuilder::to_like(Var x, Var reference) {
  return apply(OpKind::cast_like, inputs(std::move(x), std::move(reference)));
}
Var GraphBuilder::to_contiguous(Var x, DType dtype) {
  Attributes attributes = typed({}, dtype);
  attributes.flag = true;
  return apply(OpKind::cast, inputs(std::move(x)), std::move(attributes));
}
Var GraphBuilder::to_like_contiguous(Var x, Var reference) {
  Attributes attributes;
  attributes.flag = true;
  return apply(OpKind::cast_like, inputs(std::move(x), std::move(reference)),
               std::move(attributes));
}
Var GraphBuilder::zeros_like(Var x) {
  Attributes attributes;
  attributes.flag = true;
  return apply(OpKind::fill, inputs(std::move(x)), std::move(attributes));
}
Var GraphBuilder::empty(std::vector<int64_t> sizes, DType dtype) {
  return apply(OpKind::empty, {}, typed(std::move(sizes), dtype));
}
Var GraphBuilder::empty_like(std::vector<int64_t> sizes, Var like) {
  return apply(OpKind::empty, inputs(std::move(like)), ints(std::move(sizes)));
}
Var GraphBuilder::full(std::vector<int64_t> sizes, DType dtype) {
  return apply(OpKind::fill, {}, typed(std::move(sizes), dtype));
}
Var GraphBuilder::full_like(std::vector<int64_t> sizes, Var like) {
  return apply(OpKind::fill, inputs(std::move(like)), ints(std::move(sizes)));
}
Var GraphBuilder::arange(int64_t count, DType dtype) {
  return apply(OpKind::arange, {}, typed({count}, dtype));
}
Var GraphBuilder::cat(std::span<const Var> xs, int dim) {
  return apply_many(OpKind::cat, {xs.begin(), xs.end()}, 1, ints({dim}))[0];
}
Var GraphBuilder::stack(std::span<const Var> xs, int dim) {
  return apply_many(OpKind::stack, {xs.begin(), xs.end()}, 1, ints({dim}))[0];
}
Var GraphBuilder::pad(Var x, std::vector<int64_t> padding) {
  return apply(OpKind::pad, inputs(std::move(x)), ints(std::move(padding)));
}
Var GraphBuilder::repeat(Var x, std::vector<int64_t> repeats) {
  return apply(OpKind::repeat, inputs(std::move(x)), ints(std::move(repeats)));
}
Var GraphBuilder::triangle(Var x) { return apply(OpKind::triangle, inputs(std::move(x))); }

Var GraphBuilder::add(Var a, Var b) {
  return apply(OpKind::add, inputs(std::move(a), std::move(b)));
}
Var GraphBuilder::sub(Var a, Var b) {
  return apply(OpKind::sub, inputs(std::move(a), std::move(b)));
}
Var GraphBuilder::mul(Var a, Var b) {
  return apply(OpKind::mul, inputs(std::move(a), std::move(b)));
}
Var GraphBuilder::div(Var a, Var b) {
  return apply(OpKind::div, inputs(std::move(a), std::move(b)));
}
Var GraphBuilder::add(Var a, double b) {
  return apply(OpKind::add, inputs(std::move(a)), number(b));
}
Var GraphBuilder::mul(Var a, double b) {
  return apply(OpKind::mul, inputs(std::move(a)), number(b));
}
Var GraphBuilder::div(Var a, double b) {
  return apply(OpKind::div, inputs(std::move(a)), number(b));
}
Var GraphBuilder::neg(Var x) { return apply(OpKind::neg, inputs(std::move(x))); }
Var GraphBuilder::pow(Var x, double exponent) {
  return apply(OpKind::pow, inputs(std::move(x)), number(exponent));
}
Var GraphBuilder::sqrt(Var x) { return apply(OpKind::sqrt, inputs(std::move(x))); }
Var GraphBuilder::rsqrt(Var x) { return apply(OpKind::rsqrt, inputs(std::move(x))); }
Var GraphBuilder::exp(Var x) { return apply(OpKind::exp, inputs(std::move(x))); }
Var GraphBuilder::log(Var x) { return apply(OpKind::log, inputs(std::move(x))); }
Var GraphBuilder::sin(Var x) { return apply(OpKind::sin, inputs(std::move(x))); }
Var GraphBuilder::cos(Var x) { return apply(OpKind::cos, inputs(std::move(x))); }
Var GraphBuilder::clamp(Var x, int bounds) {
  return apply(OpKind::clamp, inputs(std::move(x)), ints({bounds}));
}
Var GraphBuilder::floor_divide(Var a, double b) {
  return apply(OpKind::floor_divide, inputs(std::move(a)), number(b));
}
Var GraphBuilder::compare(Var a) { return apply(OpKind::compare, inputs(std::move(a))); }
Var GraphBuilder::compare(Var a, Var b) {
  return apply(OpKind::compare, inputs(std::move(a), std::move(b)));
}
Var GraphBuilder::where(Var condition, Var a, Var b) {
  return apply(OpKind::where, inputs(std::move(condition), std::move(a), std::move(b)));
}
Var GraphBuilder::masked_fill(Var x, Var mask) {
  return apply(OpKind::masked_fill, inputs(std::move(x), std::move(mask)));
}
Var GraphBuilder::masked_fill_assign(Var x, Var mask) {
  return apply(OpKind::masked_fill, inputs(std::move(x), std::move(mask)), in_place());
}
Var GraphBuilder::clamp_assign(Var x, int bounds) {
  return apply(OpKind::clamp, inputs(std::move(x)), in_place({bounds}));
}

Var GraphBuilder::gelu(Var x, bool tanh_approximation) {
  return apply(tanh_approximation ? OpKind::gelu_tanh : OpKind::gelu, inputs(std::move(x)));
}
Var GraphBuilder::gelu_bloom(Var x) { return apply(OpKind::gelu_bloom, inputs(std::move(x))); }
Var GraphBuilder::silu(Var x) { return apply(OpKind::silu, inputs(std::move(x))); }
Var GraphBuilder::relu(Var x) { return apply(OpKind::relu, inputs(std::move(x))); }
Var GraphBuilder::sigmoid(Var x) { return apply(OpKind::sigmoid, inputs(std::move(x))); }
Var GraphBuilder::tanh(Var x) { return apply(OpKind::tanh, inputs(std::move(x))); }
Var GraphBuilder::softplus(Var x) { return apply(OpKind::softplus, inputs(std::move(x))); }
Var GraphBuilder::softmax(Var x, int dim, std::optional<DType> dtype) {
  return apply(OpKind::softmax, inputs(std::move(x)), typed({dim}, dtype));
}
Var GraphBuilder::log_softmax(Var x, int dim, std::optional<DType> dtype) {
  return apply(OpKind::log_softmax, inputs(std::move(x)), typed({dim}, dtype));
}
Var GraphBuilder::dropout(Var x, double probability) {
  return apply(OpKind::dropout, inputs(std::move(x)), number(probability));
}
Var GraphBuilder::sum(Var x, std::vector<int64_t> dims, bool keepdim) {
  return apply(OpKind::sum, inputs(std::move(x)), reduced(std::move(dims), keepdim));
}
Var GraphBuilder::mean(Var x, std::vector<int64_t> dims, bool keepdim) {
  return apply(OpKind::mean, inputs(std::move(x)), reduced(std::move(dims), keepdim));
}
Var GraphBuilder::argmax(Var x, int dim) {
  return apply(OpKind::argmax, inputs(std::move(x)), reduced({dim}, false));
}
Var GraphBuilder::amax(Var x, int dim, bool keepdim) {
  return apply(OpKind::amax, inputs(std::move(x)), reduced({dim}, keepdim));
}
Var GraphBuilder::vector_norm(Var x, int dim) {
  return apply(OpKind::vector_norm, inputs(std::move(x)), reduced({dim}, false));
}
std::vector<Var> GraphBuilder::max(Var x, int dim, bool keepdim) {
  return apply_many(OpKind::max, inputs(std::move(x)), 2, reduced({dim}, keepdim));
}
Var GraphBuilder::cumsum(Var x, int dim, std::optional<DType> dtype) {
  return apply(OpKind::cumsum, inputs(std::move(x)), typed({dim}, dtype));
}

Var GraphBuilder::mm(Var a, Var b) { return apply(OpKind::mm, inputs(std::move(a), std::move(b))); }
Var GraphBuilder::addmm(Var bias, Var a, Var b) {
  return apply(OpKind::addmm, inputs(std::move(bias), std::move(a), std::move(b)));
}
Var GraphBuilder::bmm(Var a, Var b) {
  return apply(OpKind::bmm, inputs(std::move(a), std::move(b)));
}
Var GraphBuilder::baddbmm(Var input, Var a, Var b, double alpha) {
  return apply(OpKind::baddbmm, inputs(std::move(input), std::move(a), std::move(b)),
               number(alpha));
}
Var GraphBuilder::matmul(Var a, Var b) {
  return apply(OpKind::matmul, inputs(std::move(a), std::move(b)));
}
Var GraphBuilder::solve_triangular(Var matrix, Var right) {
  return apply(OpKind::solve_triangular, inputs(std::move(matrix), std::move(right)));
}
Var GraphBuilder::linear(Var x, Var weight, Var bias) {
  return apply(OpKind::linear, inputs(std::move(x), std::move(weight), std::move(bias)));
}

Var GraphBuilder::conv1d(Var x, Var weight, Var bias, int64_t padding, int64_t groups) {
  return apply(OpKind::convolution, inputs(std::move(x), std::move(weight), std::move(bias)),
               ints({groups, 1, padding}));
}
Var GraphBuilder::conv2d(Var x, Var weight, Var bias, std::array<int64_t, 2> stride) {
  return apply(OpKind::convolution, inputs(std::move(x), std::move(weight), std::move(bias)),
               ints({1, stride[0], stride[1], 0, 0}));
}

Var GraphBuilder::layer_norm(Var x, Var weight, Var bias) {
  return apply(OpKind::layer_norm, inputs(std::move(x), std::move(weight), std::move(bias)));
}
Var GraphBuilder::rms_norm(Var x, Var weight) {
  return apply(OpKind::rms_norm, inputs(std::move(x), std::move(weight)));
}
Var GraphBuilder::embedding(Var weight, Var indices) {
  return apply(OpKind::embedding, inputs(std::move(weight), std::move(indices)));
}
Var GraphBuilder::index_select(Var x, int dim, Var index) {
  return apply(OpKind::index_select, inputs(std::move(x), std::move(index)), ints({dim}));
}
Var GraphBuilder::index(Var x, Var index, int dim) {
  return apply(OpKind::index, inputs(std::move(x), std::move(index)), ints({dim}));
}
Var GraphBuilder::index_add(Var x, int dim, Var index, Var source) {
  return apply(OpKind::index_add, inputs(std::move(x), std::move(index), std::move(source)),
               ints({dim}));
}
Var GraphBuilder::gather(Var x, int dim, Var index) {
  return apply(OpKind::gather, inputs(std::move(x), std::move(index)), ints({dim}));
}
Var GraphBuilder::scatter(Var x, int dim, Var index) {
  return apply(OpKind::scatter, inputs(std::move(x), std::move(index)), ints({dim}));
}
Var GraphBuilder::scatter_assign(Var x, int dim, Var index, Var source) {
  return apply(OpKind::scatter, inputs(std::move(x), std::move(index), std::move(source)),
               ints({dim}));
}
std::vector<Var> GraphBuilder::topk(Var x, int64_t k) {
  return apply_many(OpKind::topk, inputs(std::move(x)), 2, ints({k}));
}
std::vector<Var> GraphBuilder::sort(Var x) {
  return apply_many(OpKind::sort, inputs(std::move(x)), 2);
}
Var GraphBuilder::one_hot(Var x, int64_t classes) {
  return apply(OpKind::one_hot, inputs(std::move(x)), ints({classes}));
}

Var GraphBuilder::index_pairs(Var x, Var first, Var second) {
  return apply(OpKind::index, inputs(std::move(x), std::move(first), std::move(second)));
}
Var GraphBuilder::nonzero(Var x, int64_t count) {
  return apply(OpKind::nonzero, inputs(std::move(x)), ints({count}));
}
Var GraphBuilder::histogram(Var x, int64_t bins) {
  return apply(OpKind::histogram, inputs(std::move(x)), ints({bins}));
}
Var GraphBuilder::grouped_mm(Var rows, Var matrices, Var offsets) {
  return apply(OpKind::grouped_mm,
               inputs(std::move(rows), std::move(matrices), std::move(offsets)));
}
Var GraphBuilder::add_assign(Var a, Var b) {
  return apply(OpKind::add_assign, inputs(std::move(a), std::move(b)));
}
Var GraphBuilder::div_assign(Var a, Var b) {
  return apply(OpKind::div_assign, inputs(std::move(a), std::move(b)));
}
Var GraphBuilder::mul_assign(Var a, Var b) {
  return apply(OpKind::mul_assign, inputs(std::move(a), std::move(b)));
}
Var GraphBuilder::mul_assign(Var a, double b) {
  return apply(OpKind::mul_assign, inputs(std::move(a)), number(b));
}
Var GraphBuilder::div_assign(Var a, double b) {
  return apply(OpKind::div_assign, inputs(std::move(a)), number(b));
}
Var GraphBuilder::index_put(Var x, Var index, Var value) {
  return apply(OpKind::index_put, inputs(std::move(x), std::move(index), std::move(value)));
}
Var GraphBuilder::index_add_assign(Var x, int dim, Var index, Var source) {
  return apply(OpKind::index_add_assign, inputs(std::move(x), std::move(index), std::move(source)),
               ints({dim}));
}
Var GraphBuilder::copy_slice(Var x, Var source, int dim, int64_t start, int64_t end) {
  return apply(OpKind::copy_slice, inputs(std::move(x), std::move(source)),
               ints({dim, start, end}));
}
Var GraphBuilder::copy_select(Var x, Var source, int dim, int64_t index) {
  return apply(OpKind::copy_select, inputs(std::move(x), std::move(source)), ints({dim, index}));
}

Var GraphBuilder::sdpa(Var query, Var key, Var value, Var mask, bool causal, bool grouped,
                       double dropout) {
  Attributes attributes = ints({causal, grouped});
  attributes.number = dropout;
  return apply(OpKind::sdpa,
               inputs(std::move(query), std::move(key), std::move(value), std::move(mask)),
               std::move(attributes));
}
Var GraphBuilder::flash_attention(Var query, Var key, Var value, bool causal, double dropout) {
  Attributes attributes = ints({causal});
  attributes.number = dropout;
  return apply(OpKind::flash_attention, inputs(std::move(query), std::move(key), std::move(value)),
               std::move(attributes));
}
Var GraphBuilder::sparse_mixer(Var scores, Var gate, Var chosen, Var gates, Var midpoint) {
  return apply(OpKind::sparse_mixer, inputs(std::move(scores), std::move(gate), std::move(chosen),
                                            std::move(gates), std::move(midpoint)));
}
Var GraphBuilder::nll_loss(Var log_probabilities, Var target) {
  return apply(OpKind::nll_loss, inputs(std::move(log_probabilities), std::move(target)));
}
Var GraphBuilder::cross_entropy(Var logits, Var target) {
  return apply(OpKind::cross_entropy, inputs(std::move(logits), std::move(target)));
}

}  // namespace headroom::model
