// A linear module whose products are in float8 (e4m3 forward, e5m2 for gradients).
//
// What is cast lives as long as its product; the input is kept as it came, and cast again in
// backward. Scales are single numbers and not modelled.
// Source: torchao/float8/float8_linear.py (matmul_with_hp_or_float8_args, 0.7 to 0.14),
// torchao/float8/fsdp_utils.py (weights cast before they are gathered).
#include "operator/functional.h"

namespace headroom::op {

Tensor cast_to_float8(Eager& e, const Tensor& wide) {
  const GradMode no_grad(e, false);
  Tensor narrow = e.empty(wide.sizes(), DType::f8);
  e.kernel(OpKind::amax, static_cast<double>(wide.elements()), wide.bytes(), 4);
  e.kernel(OpKind::cast, 0, wide.bytes(), narrow.bytes());
  return narrow;
}

namespace {

bool is_float8_block(const Tensor& tensor) {
  return tensor->storage->bytes == tensor.elements() && element_size(tensor.dtype()) > 1;
}

// What goes into a product: nothing new where it came cast.
Tensor as_operand(Eager& e, const Tensor& tensor) {
  return is_float8_block(tensor) ? Tensor() : cast_to_float8(e, tensor);
}

// [rows, inner] by [inner, columns], both in float8; a made tensor of `type`.
Tensor float8_mm(Eager& e, int64_t rows, int64_t inner, int64_t columns, DType type) {
  Tensor out = e.empty({rows, columns}, type);
  e.use_blas(true);
  e.kernel({.kind = OpKind::mm,
            .flops = 2.0 * static_cast<double>(rows) * static_cast<double>(inner) *
                     static_cast<double>(columns),
            .bytes_read = (rows + columns) * inner,
            .bytes_written = out.bytes(),
            .element_bytes = 1,
            .rows = rows});
  return out;
}

void float8_backward(Eager& e, Node& n, Grads& grads, Grads& results) {
  const Tensor& input = n.saved[0];
  const Tensor& weight = n.saved[1];
  const int64_t rows = input.size(0);
  const Tensor gradient = as_operand(e, grads[0]);
  if (n.needs(0)) {
    const Tensor narrow = as_operand(e, weight);
    results[0] = float8_mm(e, rows, weight.size(0), weight.size(1), input.dtype());
  }
  if (n.needs(1)) {
    const Tensor narrow = as_operand(e, input);
    results[1] = float8_mm(e, weight.size(0), rows, weight.size(1), weight.dtype());
  }
}

// input [rows, in]
Tensor float8_product(Eager& e, const Tensor& input, const Tensor& weight) {
  require(input.size(1) == weight.size(1), "a matrix product of sizes that do not fit");
  Tensor out;
  // Policies of selective checkpoints see a product like any other.
  if (!e.recall(OpKind::mm, {&out})) {
    const Tensor narrow = as_operand(e, input);
    const Tensor narrow_weight = as_operand(e, weight);
    out = float8_mm(e, input.size(0), input.size(1), weight.size(0), input.dtype());
    e.made(OpKind::mm, {&out});
  }
  if (Node* node = e.history(kFloat8Product, {&input, &weight}, {&out})) {
    node->save(input);
    node->save(weight);
    node->apply = &float8_backward;
    e.finish(*node);
  }
  return out;
}

}  // namespace

Tensor float8_linear(Eager& e, const Tensor& input, const Tensor& weight, const Tensor& bias) {
  Dims sizes = input.sizes();
  sizes[sizes.size() - 1] = weight.size(0);
  const Tensor out =
      view(e, float8_product(e, view(e, input, {-1, input.size(-1)}), weight), sizes);
  return bias ? add(e, out, bias) : out;
}

}  // namespace headroom::op
