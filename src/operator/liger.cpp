// Liger-Kernel's operators but for the losses (liger_loss.cpp). Source: src/liger_kernel/ops/*.py
// of the releases named below; a custom function's local variables live until it returns, so they
// are named here in the same order.
#include <algorithm>

#include "operator/functional.h"
#include "operator/fused_kernels.h"

namespace headroom::op {

namespace {

constexpr Version kPartialWeightGradients{0, 4};  // rms_norm: one partial sum a multiprocessor
constexpr Version kFrozenHasNoGradient{0, 5};     // norms: a frozen weight's gradient is not made
constexpr Version kFloat32Statistics{0, 5};       // layer_norm

Dims rows_of(const Tensor& input) {
  return {input.elements() / std::max<int64_t>(input.size(-1), 1)};
}

Tensor column_sums(Eager& e, const Tensor& rows) {
  const int first[] = {0};
  return sum(e, rows, first, false);
}

double elements_of(const Tensor& tensor) { return static_cast<double>(tensor.elements()); }

// ensure_contiguous: within the function, so the copy has no history.
Tensor contiguous_inside(Eager& e, const Tensor& tensor) {
  GradMode no_grad(e, false);
  return contiguous(e, tensor);
}

}  // namespace

Tensor liger_rms_norm(Eager& e, const Tensor& input_in, const Tensor& weight, LigerNorm norm) {
  const Tensor input = contiguous_inside(e, input_in);
  Tensor out = e.empty(input.sizes(), input.dtype());
  const Tensor rstd = e.empty(rows_of(input), DType::f32);
  e.kernel(OpKind::liger_rms_norm, 4 * elements_of(input), input.bytes(), out.bytes());
  if (Node* node = e.history("LigerRMSNormFunctionBackward", {&input_in, &weight}, {&out})) {
    for (const Tensor& tensor : {input, weight, rstd}) node->save(tensor);
    node->apply = [norm](Eager& eager, Node& n, Grads& g, Grads& result) {
      const Tensor grad = contiguous(eager, g[0]);
      const Tensor& x = n.saved[0];
      const DType type = n.saved[1].dtype();
      Tensor shares;
      // Every row's own share of the weight's gradient until 0.4; a multiprocessor's afterwards.
      if (norm.liger < kPartialWeightGradients) {
        shares = eager.empty_like(x, type);
      } else if (n.needs(1) || norm.liger < kFrozenHasNoGradient) {
        shares = eager.empty({eager.environment().multiprocessors, x.size(-1)}, DType::f32);
      }
      const Tensor out_grad = norm.in_place ? grad : zeros_like(eager, grad);
      eager.kernel(OpKind::liger_rms_norm, 8 * elements_of(x), 2 * x.bytes(), x.bytes());
      result[0] = view(eager, out_grad, g[0].sizes());
      if (shares) result[1] = to(eager, column_sums(eager, shares), type);
    };
    e.finish(*node);
  }
  return out;
}

Tensor liger_layer_norm(Eager& e, const Tensor& input_in, const Tensor& weight, const Tensor& bias,
                        Version liger) {
  const Tensor input = contiguous_inside(e, input_in);
  Tensor out = e.empty(input.sizes(), input.dtype());
  const bool is_new = liger >= kFloat32Statistics;
  const DType statistics = is_new ? DType::f32 : input.dtype();
  const Tensor mean = e.empty(rows_of(input), statistics);
  const Tensor rstd = e.empty(rows_of(input), statistics);
  e.kernel(OpKind::liger_layer_norm, 6 * elements_of(input), input.bytes(), out.bytes());
  if (Node* node =
          e.history("LigerLayerNormFunctionBackward", {&input_in, &weight, &bias}, {&out})) {
    for (const Tensor& tensor : {input, weight, bias, mean, rstd}) node->save(tensor);
    node->apply = [is_new](Eager& eager, Node& n, Grads& g, Grads& result) {
      const Tensor grad = contiguous(eager, g[0]);
      const Tensor& x = n.saved[0];
      const DType type = n.saved[1].dtype();
      const Dims sizes{eager.environment().multiprocessors, x.size(-1)};
      Tensor shares[2];
      for (size_t i = 0; i < 2; ++i) {
        const bool is_made = !is_new || n.needs(i + 1);
        if (is_new && is_made) shares[i] = eager.empty(sizes, DType::f32);
      }
      const Tensor out_grad = eager.empty(x.sizes(), x.dtype());
      for (Tensor& share : shares) {
        if (!is_new) share = eager.empty(sizes, type);
      }
      eager.kernel(OpKind::liger_layer_norm, 10 * elements_of(x), 2 * x.bytes(), x.bytes());
      result[0] = view(eager, out_grad, g[0].sizes());
      for (size_t i = 0; i < 2; ++i) {
        if (shares[i]) result[i + 1] = to(eager, column_sums(eager, shares[i]), type);
      }
    };
    e.finish(*node);
  }
  return out;
}

namespace {

// [b, h, s, d] rotated where it lies if its storage is [b, s, h, d], else in a copy laid out so.
Tensor rotated(Eager& e, const Tensor& tensor) {
  const Tensor rows = contiguous(e, transpose(e, tensor, 1, 2));
  e.kernel(OpKind::liger_rotary, 3 * elements_of(rows), rows.bytes(), rows.bytes());
  return transpose(e, rows, 1, 2);
}

}  // namespace

std::pair<Tensor, Tensor> liger_rotary(Eager& e, const Tensor& query, const Tensor& key,
                                       const Tensor& cos_in, const Tensor& sin_in) {
  Tensor query_out;
  Tensor key_out;
  Tensor cos;
  Tensor sin;
  {
    GradMode no_grad(e, false);
    query_out = rotated(e, query);
    key_out = rotated(e, key);
    cos = contiguous(e, cos_in);
    sin = contiguous(e, sin_in);
  }
  if (Node* node = e.history("LigerRopeFunctionBackward", {&query, &key}, {&query_out, &key_out})) {
    node->save(cos);
    node->save(sin);
    node->apply = [](Eager& eager, Node&, Grads& g, Grads& result) {
      for (size_t i = 0; i < 2; ++i) {
        if (g[i]) result[i] = rotated(eager, g[i]);
      }
    };
    e.finish(*node);
  }
  return {query_out, key_out};
}

Tensor liger_gated(Eager& e, const Tensor& gate_in, const Tensor& up_in) {
  const Tensor gate = contiguous_inside(e, gate_in);
  const Tensor up = contiguous_inside(e, up_in);
  Tensor out = e.empty(gate.sizes(), gate.dtype());
  e.kernel(OpKind::liger_gated, 6 * elements_of(out), gate.bytes() + up.bytes(), out.bytes());
  if (Node* node = e.history("LigerSiLUMulFunctionBackward", {&gate_in, &up_in}, {&out})) {
    node->save(gate);
    node->save(up);
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      const Tensor grad = contiguous(eager, g[0]);
      eager.kernel(OpKind::liger_gated, 12 * elements_of(grad), 3 * grad.bytes(), 2 * grad.bytes());
      for (size_t i = 0; i < 2; ++i) result[i] = view(eager, n.saved[i], grad.sizes());
    };
    e.finish(*node);
  }
  return out;
}

Tensor liger_embedding(Eager& e, const Tensor& weight, const Tensor& indices) {
  Dims sizes = indices.sizes();
  sizes.push_back(weight.size(1));
  Tensor out = e.empty(sizes, weight.dtype());
  e.kernel(OpKind::fused_kernel, 0, out.bytes(), out.bytes());
  if (Node* node = e.history("LigerEmbeddingFunctionBackward", {&weight}, {&out})) {
    node->save(indices);
    node->save(weight);
    node->apply = [](Eager& eager, Node& n, Grads& g, Grads& result) {
      const Tensor grad = contiguous(eager, g[0]);
      result[0] = zeros_like(eager, n.saved[1]);
      eager.kernel(OpKind::fused_kernel, elements_of(grad), grad.bytes(), grad.bytes());
    };
    e.finish(*node);
  }
  return out;
}

}  // namespace headroom::op
