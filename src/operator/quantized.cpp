// Linear modules whose weight is stored in few bits: each call unpacks the whole weight,
// multiplies, and lets the unpacked copy go; so does its backward.
//
// Weights of 8 bits are not unpacked forward: what they are multiplied with is quantized, too.
//
// Sources: bitsandbytes 0.43 to 0.49 (autograd/_functions.py MatMul4Bit, functional.py
// dequantize_4bit, nn/modules.py Linear4bit) and 0.50 (MatMul8bitLt, Linear8bitLt,
// backends/cuda/ops.py), auto-gptq's and fms-acceleration's qlinear_tritonv2.py.
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

struct QuantizedRows {
  Tensor scales;
  Tensor values;
};

// int8_vectorwise_quant, with LLM.int8's search for outliers among the magnitudes: none is taken to
// be there.
QuantizedRows quantized_rows(Eager& e, const Tensor& half) {
  QuantizedRows made;
  made.scales = e.empty({half.size(0)}, DType::f32);
  made.values = e.empty(half.sizes(), DType::i8);
  Tensor are_outliers;
  {
    const Tensor magnitudes = e.empty(half.sizes(), DType::f16);
    e.kernel(OpKind::compare, 0, half.bytes(), magnitudes.bytes());
    are_outliers = e.empty(half.sizes(), DType::boolean);
    e.kernel(OpKind::compare, 0, magnitudes.bytes(), are_outliers.bytes());
  }
  {
    const Tensor is_any = e.empty({}, DType::boolean);
    e.kernel(OpKind::amax, static_cast<double>(half.elements()), are_outliers.bytes(), 1);
  }
  e.kernel(OpKind::quantize, 0, half.bytes(), made.values.bytes() + made.scales.bytes());
  return made;
}

// int8_scaled_mm: whole numbers of 32 bits, scaled to float16, which alone the kernel writes.
Tensor scaled_product(Eager& e, const QuantizedRows& rows, const Tensor& bias,
                      const QuantizedLinear& q, DType dtype) {
  const int64_t count = rows.values.size(0);
  const Tensor sums = e.empty({count, q.out}, DType::i32);
  e.kernel({.kind = OpKind::int8_mm,
            .flops = 2.0 * static_cast<double>(count) * static_cast<double>(q.in * q.out),
            .bytes_read = rows.values.bytes() + packed_bytes(q),
            .bytes_written = sums.bytes(),
            .element_bytes = 1,
            .rows = count});
  const Tensor scaled = e.empty({count, q.out}, DType::f16);
  e.kernel(OpKind::mul, 0, sums.bytes(), scaled.bytes());
  if (bias && bias.dtype() != DType::f16) {
    e.kernel(OpKind::add_assign, 0, scaled.bytes() + bias.bytes(), scaled.bytes());
  }
  return to(e, scaled, dtype);
}

// MatMul8bitLt. The input is kept as an attribute of the context, as it came: no hook sees it, and
// a checkpoint that looks at what is saved does not let go of it.
Tensor product_int8(Eager& e, const Tensor& x, const Tensor& bias, const QuantizedLinear& q) {
  Dims sizes = x.sizes();
  sizes.back() = q.out;
  Tensor rows;
  Tensor out;
  {
    GradMode no_grad(e, false);
    rows = reshape(e, x, {-1, q.in});
    const QuantizedRows narrow = quantized_rows(e, to(e, rows, DType::f16));
    out = view(e, scaled_product(e, narrow, bias, q, x.dtype()), sizes);
  }
  if (Node* node = e.history("MatMul8bitLt", {&x, &bias}, {&out})) {
    const Tensor kept = node->needs(0) ? rows : Tensor();
    if (kept) e.note_saved(kept);
    node->apply = [q, kept, before = x.sizes()](Eager& eager, Node& n, Grads& g, Grads& result) {
      if (n.needs(1)) result[1] = sum_of_rows(eager, g[0]);
      if (!n.needs(0)) return;
      const Tensor gradient = contiguous(eager, reshape(eager, g[0], {-1, q.out}));
      const Tensor weight = unpacked_int8(eager, q, kept.dtype());
      result[0] = view(eager, matmul(eager, gradient, weight), before);
    };
  }
  return out;
}

// Linear8bitLt.forward() casts its bias to the input's type, for good.
void cast_for_good(Eager& e, const Tensor& bias, DType dtype) {
  if (!bias || bias.dtype() == dtype) return;
  GradMode no_grad(e, false);
  const Tensor cast = to(e, bias, dtype);
  bias->storage = cast->storage;
  bias->dtype = dtype;
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
  if (q.format == QuantizedFormat::int8) {
    cast_for_good(e, bias, input.dtype());
    return product_int8(e, input, bias, q);
  }
  const Tensor x = to(e, input, q.compute);
  const Tensor cast_bias = bias ? to(e, bias, q.compute) : Tensor();
  return to(e, product_nf4(e, x, cast_bias, q), input.dtype());
}

}  // namespace headroom::op
