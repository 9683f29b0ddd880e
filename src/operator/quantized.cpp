// Linear modules whose weight is stored in few bits: each call unpacks the whole weight,
// multiplies, and lets the unpacked copy go; so does its backward.
//
// Sources: bitsandbytes 0.43 to 0.49 (autograd/_functions.py MatMul4Bit and MatMul8bitLt,
// functional.py dequantize_4bit, nn/modules.py Linear4bit), auto-gptq's and fms-acceleration's
// qlinear_tritonv2.py.
#include "operator/functional.h"

namespace headroom::op {

namespace {

constexpr int64_t kBlock = 64;  // weights that share an absolute maximum, a float32

int64_t packed_bytes(const QuantizedLinear& q) {
  return q.format == QuantizedFormat::int8 ? q.in * q.out : q.in * q.out / 2;
}

// dequantize_4bit.
Tensor unpacked_nf4(Eager& e, const QuantizedLinear& q) {
  Tensor maxima;
  if (q.format == QuantizedFormat::nf4_double) maxima = unpacked_maxima(e, q);
  Tensor weight = e.empty({q.out, q.in}, q.unpacked);
  unpack_nf4(e, q, weight);
  return weight;
}

// Scaled in place after the copy; the scales' own product is a row of float32.
Tensor unpacked_int8(Eager& e, const QuantizedLinear& q, DType dtype) {
  Tensor weight = e.empty({q.out, q.in}, dtype);
  e.kernel(OpKind::cast, 0, packed_bytes(q), weight.bytes());
  const Tensor scales = e.empty({q.out, 1}, DType::f32);
  e.kernel(OpKind::mul, 0, weight.bytes(), weight.bytes());
  return weight;
}

Tensor sum_of_rows(Eager& e, const Tensor& gradient) {
  std::vector<int> dims;
  for (int i = 0; i + 1 < gradient.rank(); ++i) dims.push_back(i);
  return sum(e, gradient, dims, false);
}

Tensor product_nf4(Eager& e, const Tensor& x, const Tensor& bias, const QuantizedLinear& q) {
  Tensor out;
  {
    GradMode no_grad(e, false);
    out = linear(e, x, to(e, unpacked_nf4(e, q), x.dtype()), bias);
  }
  if (Node* node = e.history("MatMul4Bit", {&x, &bias}, {&out})) {
    // Kept as an attribute of the context: no hook sees it, and it goes with the graph.
    const Tensor kept = q.keeps_input ? x : Tensor();
    if (kept) e.note_saved(kept);
    node->apply = [q, kept](Eager& eager, Node& n, Grads& g, Grads& result) {
      if (n.needs(1)) result[1] = sum_of_rows(eager, g[0]);
      if (n.needs(0)) {
        result[0] = matmul(eager, g[0], to(eager, unpacked_nf4(eager, q), g[0].dtype()));
      }
    };
  }
  return out;
}

// Activations are quantized by row and by column; the columns, and the activations themselves, stay
// with the graph.
Tensor product_int8(Eager& e, const Tensor& x, const Tensor& bias, const QuantizedLinear& q) {
  const int64_t rows = x.elements() / q.in;
  Tensor out;
  Tensor columns;
  Tensor column_scales;
  {
    GradMode no_grad(e, false);
    const Tensor half = to(e, x, DType::f16);
    const Tensor by_row = e.empty({rows, q.in}, DType::i8);
    const Tensor row_scales = e.empty({rows}, DType::f32);
    if (x.requires_grad()) {
      columns = e.empty({rows, q.in}, DType::i8);
      column_scales = e.empty({q.in}, DType::f32);
    }
    const Tensor sums = e.empty({rows, q.out}, DType::i32);
    const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(q.in * q.out);
    e.kernel(OpKind::mm, flops, by_row.bytes() + packed_bytes(q), sums.bytes());
    out = to(e, e.empty({rows, q.out}, DType::f16), x.dtype());
    Dims sizes = x.sizes();
    sizes.back() = q.out;
    out = view(e, out, sizes);
  }
  if (Node* node = e.history("MatMul8bitLt", {&x, &bias}, {&out})) {
    node->apply = [q, x, columns, column_scales](Eager& eager, Node& n, Grads& g, Grads& result) {
      if (n.needs(1)) result[1] = sum_of_rows(eager, g[0]);
      if (n.needs(0)) {
        result[0] = matmul(eager, g[0], unpacked_int8(eager, q, x.dtype()));
      }
    };
  }
  return out;
}

Tensor product_gptq(Eager& e, const Tensor& rows, const QuantizedLinear& q) {
  Tensor out;
  {
    GradMode no_grad(e, false);
    out = matmul(e, rows, unpacked_gptq(e, q));
  }
  if (Node* node = e.history("QuantLinearFunction", {&rows}, {&out})) {
    node->apply = [q](Eager& eager, Node&, Grads& g, Grads& result) {
      const Tensor weight = unpacked_gptq(eager, q);
      result[0] = matmul(eager, g[0], t(eager, weight));
    };
  }
  return out;
}

}  // namespace

Tensor unpacked_gptq(Eager& e, const QuantizedLinear& q) {
  Tensor weight = e.empty({q.in, q.out}, DType::f16);
  e.kernel(OpKind::dequantize, 0, packed_bytes(q), weight.bytes());
  return weight;
}

Tensor unpacked_maxima(Eager& e, const QuantizedLinear& q) {
  const int64_t blocks = (q.in * q.out + kBlock - 1) / kBlock;
  Tensor maxima = e.empty({blocks}, DType::f32);
  e.kernel(OpKind::dequantize, 0, blocks, maxima.bytes());
  e.kernel(OpKind::add, 0, maxima.bytes(), maxima.bytes());
  return maxima;
}

void unpack_nf4(Eager& e, const QuantizedLinear& q, const Tensor& weight) {
  const int64_t blocks = (q.in * q.out + kBlock - 1) / kBlock;
  e.kernel(OpKind::dequantize, 0, packed_bytes(q) + blocks * element_size(DType::f32),
           weight.bytes());
}

Tensor quantized_linear(Eager& e, const Tensor& input, const Tensor& bias,
                        const QuantizedLinear& q) {
  if (q.format == QuantizedFormat::gptq) {
    Dims sizes = input.sizes();
    sizes.back() = q.out;
    const Tensor out =
        reshape(e, to(e, product_gptq(e, reshape(e, input, {-1, q.in}), q), DType::f16), sizes);
    return bias ? add(e, out, bias) : out;
  }
  if (q.format == QuantizedFormat::int8) return product_int8(e, input, bias, q);
  const Tensor x = to(e, input, q.compute);
  const Tensor cast_bias = bias ? to(e, bias, q.compute) : Tensor();
  return to(e, product_nf4(e, x, cast_bias, q), input.dtype());
}

}  // namespace headroom::op
