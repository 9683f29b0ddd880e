// Activations, softmax and dropout: one kernel forward, one backward, each keeping its input or its
// output.
#include "operator/functional.h"
#include "operator/scratch.h"

namespace headroom::op {

namespace {

Tensor like(Eager& e, OpKind kind, const Tensor& self, DType dtype) {
  Tensor out = e.empty_like(self, dtype);
  e.kernel(kind, static_cast<double>(out.elements()), self.bytes(), out.bytes());
  return out;
}

// A function whose backward is one kernel over the gradient and what was kept.
Tensor activation(Eager& e, OpKind kind, const char* name, const Tensor& self, bool keeps_output) {
  Tensor out = like(e, kind, self, self.dtype());
  if (Node* node = e.history(name, {&self}, {&out})) {
    node->save(keeps_output ? out : self);
    node->apply = [kind](Eager& eager, Node& n, Grads& g, Grads& result) {
      result[0] = eager.elementwise_output({&g[0], &n.saved[0]}, g[0].dtype());
      eager.kernel(kind, static_cast<double>(g[0].elements()), g[0].bytes() + n.saved[0].bytes(),
                   result[0].bytes());
    };
    e.finish(*node);
  }
  return out;
}

using Softmax = OpKind;

// Of the backward pass: what kernels take beside what the operator answers (scratch.h).
Tensor softmax_product(Eager& e, Softmax kind, const Tensor& grad) {
  if (kind != OpKind::softmax) return {};
  const int64_t bytes = softmax_product_bytes(e.environment(), grad.bytes());
  if (bytes == 0) return {};
  Tensor product = e.scratch(bytes);
  e.kernel(OpKind::mul, static_cast<double>(grad.elements()), 2 * grad.bytes(), bytes);
  return product;
}

Tensor softmax_like(Eager& e, Softmax kind, const char* name, const Tensor& self, int dim,
                    std::optional<DType> dtype) {
  // float16 is widened inside the kernel; every other type is cast first (ATen/native/SoftMax.cpp).
  const bool half_to_float =
      self.dtype() == DType::f16 && dtype == DType::f32 && e.environment().compute_capability > 0;
  const Tensor input = dtype && !half_to_float ? to(e, self, *dtype) : self;
  const Tensor dense = contiguous(e, e.detach(input));
  Tensor out = e.empty(input.sizes(), half_to_float ? DType::f32 : input.dtype());
  e.kernel(kind, 5.0 * static_cast<double>(out.elements()), input.bytes(), out.bytes());
  static_cast<void>(dim);
  if (Node* node = e.history(name, {&input}, {&out})) {
    node->save(out);
    node->apply = [kind, input_dtype = input.dtype()](Eager& eager, Node& n, Grads& g,
                                                      Grads& result) {
      const Tensor grad = contiguous(eager, g[0]);
      result[0] = eager.empty(grad.sizes(), input_dtype);
      const Tensor product = softmax_product(eager, kind, grad);
      eager.kernel(kind, 4.0 * static_cast<double>(grad.elements()),
                   grad.bytes() + n.saved[0].bytes(), result[0].bytes());
    };
    e.finish(*node);
  }
  return out;
}

// tanh(0.79788456 * x * (1 + 0.044715 * x * x))
Tensor bloom_tanh(Eager& e, const Tensor& x) {
  Tensor outer = mul_scalar(e, x, 0.79788456);
  Tensor inner = mul_scalar(e, x, 0.044715);
  inner = mul(e, inner, x);
  inner = add_scalar(e, inner, 1);
  outer = mul(e, outer, inner);
  inner = Tensor();
  return tanh(e, outer);
}

// 0.5 * x * ((1 - tanh^2) * (0.79788456 + 0.1070322243 * x^2)) + 0.5 * (1 + tanh)
Tensor bloom_slope(Eager& e, const Tensor& x, const Tensor& tanh) {
  Tensor slope = mul_scalar(e, x, 0.5);
  Tensor rest = mul(e, tanh, tanh);
  rest = add_scalar(e, rest, 1);
  Tensor square = mul_scalar(e, x, 0.1070322243);
  square = mul(e, square, x);
  square = add_scalar(e, square, 0.79788456);
  rest = mul(e, rest, square);
  square = Tensor();
  slope = mul(e, slope, rest);
  rest = Tensor();
  rest = add_scalar(e, tanh, 1);
  rest = mul_scalar(e, rest, 0.5);
  return add(e, slope, rest);
}

}  // namespace

Tensor gelu_bloom(Eager& e, const Tensor& self) {
  Tensor out;
  {
    GradMode no_grad(e, false);
    Tensor half = mul_scalar(e, self, 0.5);
    Tensor rest = bloom_tanh(e, self);
    rest = add_scalar(e, rest, 1);
    out = mul(e, half, rest);
  }
  if (Node* node = e.history("GeLUFunctionBackward", {&self}, {&out})) {
    node->save(self);
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      const Tensor tanh = bloom_tanh(eager, n.saved[0]);
      const Tensor slope = bloom_slope(eager, n.saved[0], tanh);
      result[0] = mul(eager, slope, g[0]);
    };
    e.finish(*node);
  }
  return out;
}

Tensor gelu(Eager& e, const Tensor& self, bool tanh_approximation) {
  return activation(e, tanh_approximation ? OpKind::gelu_tanh : OpKind::gelu, "GeluBackward0", self,
                    false);
}
Tensor silu(Eager& e, const Tensor& self) {
  return activation(e, OpKind::silu, "SiluBackward0", self, false);
}
Tensor relu(Eager& e, const Tensor& self) {
  return activation(e, OpKind::relu, "ReluBackward0", self, true);
}
Tensor sigmoid(Eager& e, const Tensor& self) {
  return activation(e, OpKind::sigmoid, "SigmoidBackward0", self, true);
}
Tensor tanh(Eager& e, const Tensor& self) {
  return activation(e, OpKind::tanh, "TanhBackward0", self, true);
}
Tensor softplus(Eager& e, const Tensor& self) {
  return activation(e, OpKind::softplus, "SoftplusBackward0", self, false);
}

Tensor softmax(Eager& e, const Tensor& self, int dim, std::optional<DType> dtype) {
  return softmax_like(e, OpKind::softmax, "SoftmaxBackward0", self, dim, dtype);
}
Tensor log_softmax(Eager& e, const Tensor& self, int dim, std::optional<DType> dtype) {
  return softmax_like(e, OpKind::log_softmax, "LogSoftmaxBackward0", self, dim, dtype);
}

Tensor dropout(Eager& e, const Tensor& self, double probability, bool train) {
  if (!train || probability <= 0) return self;
  Tensor out = like(e, OpKind::dropout, self, self.dtype());
  Tensor mask = e.empty_like(self, DType::boolean);
  if (Node* node = e.history("NativeDropoutBackward0", {&self}, {&out})) {
    node->save(mask);
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      result[0] = eager.elementwise_output({&g[0], &n.saved[0]}, g[0].dtype());
      eager.kernel(OpKind::dropout, static_cast<double>(g[0].elements()),
                   g[0].bytes() + n.saved[0].bytes(), result[0].bytes());
    };
    e.finish(*node);
  }
  return out;
}

}  // namespace headroom::op
