// Fused normalizations over the last dimension (native_layer_norm and its RMS sibling).
#include "operator/functional.h"
#include "operator/scratch.h"

namespace headroom::op {

namespace {

// Statistics are kept in float32 for the half types.
DType statistics_type(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 ? DType::f32 : dtype;
}

Dims statistics_sizes(const Tensor& input) {
  Dims sizes = input.sizes();
  sizes.back() = 1;
  return sizes;
}

constexpr double kFlopsPerElement = 8;

Tensor backward_kernel(Eager& e, OpKind kind, const Tensor& grad, const Tensor& input) {
  Tensor result = e.empty(input.sizes(), input.dtype());
  e.kernel(kind, kFlopsPerElement * static_cast<double>(input.elements()),
           grad.bytes() + input.bytes(), result.bytes());
  return result;
}

int64_t partial_bytes(const Eager& e, const Tensor& input) {
  const int64_t width = input.size(-1);
  return norm_backward_partial_bytes(e.environment(), width > 0 ? input.elements() / width : 0,
                                     width, input.dtype());
}

// Where the argument is not contiguous the kernel works on a copy that nobody else sees
// (expect_contiguous in ATen/native/cuda/layer_norm_kernel.cu).
Tensor copy_within(Eager& e, const Tensor& x) {
  return e.scratch(x.is_contiguous() ? 0 : x.elements() * element_size(x.dtype()));
}

}  // namespace

Tensor layer_norm(Eager& e, const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const Tensor copy = copy_within(e, input);
  Tensor out = e.empty(input.sizes(), input.dtype());
  const DType statistics = statistics_type(input.dtype());
  Tensor mean = e.empty(statistics_sizes(input), statistics);
  Tensor rstd = e.empty(statistics_sizes(input), statistics);
  e.kernel(OpKind::layer_norm, kFlopsPerElement * static_cast<double>(input.elements()),
           input.bytes(), out.bytes());
  if (Node* node = e.history("NativeLayerNormBackward0", {&input, &weight, &bias}, {&out})) {
    node->save(input);
    node->save(weight);
    node->save(bias);
    node->save(mean);
    node->save(rstd);
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      const Tensor grad_copy = copy_within(eager, g[0]);
      const Tensor input_copy = copy_within(eager, n.saved[0]);
      if (n.needs(0)) result[0] = backward_kernel(eager, OpKind::layer_norm, g[0], n.saved[0]);
      if (n.needs(1)) result[1] = eager.empty_like(n.saved[1], n.saved[1].dtype());
      if (n.needs(2)) result[2] = eager.empty_like(n.saved[2], n.saved[2].dtype());
      const int64_t partial = partial_bytes(eager, n.saved[0]);
      const Tensor weight_parts = eager.scratch(n.needs(1) ? partial : 0);
      const Tensor bias_parts = eager.scratch(n.needs(2) ? partial : 0);
    };
    e.finish(*node);
  }
  return out;
}

Tensor rms_norm(Eager& e, const Tensor& input_in, const Tensor& weight) {
  const Tensor input = contiguous(e, input_in);
  Tensor out = e.empty(input.sizes(), input.dtype());
  Tensor rstd = e.empty(statistics_sizes(input), statistics_type(input.dtype()));
  e.kernel(OpKind::rms_norm, kFlopsPerElement * static_cast<double>(input.elements()),
           input.bytes(), out.bytes());
  if (Node* node = e.history("FusedRmsNormBackward0", {&input, &weight}, {&out})) {
    node->save(input);
    node->save(weight);
    node->save(rstd);
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      const Tensor grad = contiguous(eager, g[0]);
      if (n.needs(0)) result[0] = backward_kernel(eager, OpKind::rms_norm, grad, n.saved[0]);
      if (n.needs(1)) result[1] = eager.empty_like(n.saved[1], n.saved[1].dtype());
      const Tensor parts = eager.scratch(n.needs(1) ? partial_bytes(eager, n.saved[0]) : 0);
    };
    e.finish(*node);
  }
  return out;
}

}  // namespace headroom::op
