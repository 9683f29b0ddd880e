#include "operator/transformer_engine.h"

#include <algorithm>

#include "operator/transformer_engine_parts.h"

namespace headroom::op {

namespace {

constexpr double kSoftmaxFlops = 5;

// rows [n, k] by a matrix of n columns: [n, m].
Tensor product(Eager& e, const Tensor& rows, int64_t columns, const Tensor& matrix) {
  Tensor out = e.empty({rows.size(0), columns}, rows.dtype());
  e.kernel({.kind = OpKind::mm,
            .flops = 2 * elements_of(rows) * static_cast<double>(columns),
            .bytes_read = rows.bytes() + matrix.bytes(),
            .bytes_written = out.bytes(),
            .element_bytes = static_cast<uint8_t>(element_size(out.dtype())),
            .rows = rows.size(0)});
  return out;
}

// The weight's gradient; undefined where it is added to a buffer.
Tensor weight_gradient(Eager& e, const Tensor& weight, const Tensor& grad, const Tensor& rows,
                       const ParallelLinear& module) {
  Tensor out;
  if (!module.fused_accumulation) out = e.empty(weight.sizes(), weight.dtype());
  e.kernel(OpKind::mm, 2 * elements_of(grad) * static_cast<double>(rows.size(1)),
           grad.bytes() + rows.bytes(), weight.bytes(), weight.dtype());
  return out;
}

struct Normed {
  Tensor out, mean, rstd;
};

Normed normalize(Eager& e, const Tensor& rows, bool has_mean) {
  Normed normed;
  normed.out = e.empty(rows.sizes(), rows.dtype());
  if (has_mean) normed.mean = e.empty({rows.size(0)}, DType::f32);
  normed.rstd = e.empty({rows.size(0)}, DType::f32);
  row_kernel(e, OpKind::layer_norm, rows, kTeNormFlops, rows.bytes(), rows.bytes());
  return normed;
}

// Rows of this rank, by its columns of the matrix: [s, b, columns].
Tensor column_product(Eager& e, const Tensor& input, const Tensor& rows, const Tensor& weight,
                      const ParallelLinear& module) {
  Tensor whole = rows;
  if (gathers(module)) {
    GradMode no_grad(e, false);
    whole = gathered_rows(e, contiguous(e, rows), module.ranks);
  }
  Tensor out = product(e, whole, weight.size(0), weight);
  whole = Tensor();
  return as_sequences(e, out, input.size(1));
}

// The gradient of this rank's rows, and of the weight and the bias where they are wanted.
struct ColumnGrads {
  Tensor rows, weight, bias;
  Tensor output, sum;  // named until the module's backward is done
};

ColumnGrads column_gradients(Eager& e, const Tensor& output_grad, const Tensor& rows,
                             const Tensor& weight, bool wants_weight, bool wants_bias,
                             const ParallelLinear& module) {
  ColumnGrads grads;
  grads.output = rows_of(e, contiguous(e, output_grad));
  Tensor whole = rows;
  if (gathers(module)) {
    GradMode no_grad(e, false);
    whole = gathered_rows(e, contiguous(e, rows), module.ranks);
  }
  grads.sum = product(e, grads.output, weight.size(1), weight);
  grads.rows = reduced(e, grads.sum, module);
  if (wants_weight) grads.weight = weight_gradient(e, weight, grads.output, whole, module);
  if (wants_bias) grads.bias = e.empty({weight.size(0)}, weight.dtype());
  return grads;
}

}  // namespace

Tensor te_norm_linear(Eager& e, const Tensor& input, const Tensor& norm_weight,
                      const Tensor& norm_bias, const Tensor& weight, const Tensor& bias,
                      const ParallelLinear& module) {
  const Tensor rows = rows_of(e, input);
  Normed normed = normalize(e, rows, static_cast<bool>(norm_bias));
  Tensor out = column_product(e, input, normed.out, weight, module);
  Node* node = e.history("_LayerNormLinearBackward",
                         {&input, &norm_weight, &norm_bias, &weight, &bias}, {&out});
  if (node == nullptr) return out;
  for (const Tensor& tensor : {rows, weight, norm_weight, normed.out, normed.mean, normed.rstd}) {
    node->save(tensor);
  }
  node->apply = [module, has_norm_bias = static_cast<bool>(norm_bias)](Eager& eager, Node& n,
                                                                       Grads& g, Grads& result) {
    ColumnGrads grads =
        column_gradients(eager, g[0], n.saved[3], n.saved[1], n.needs(3), n.needs(4), module);
    result[3] = std::move(grads.weight);
    result[4] = std::move(grads.bias);
    normalize_backward(eager, n.saved[0], n.saved[2], has_norm_bias, result);
    const int64_t batch = n.outputs[0].sizes[1];
    result[0] = view(eager, result[0],
                     {result[0].size(0) / std::max<int64_t>(batch, 1), batch, result[0].size(1)});
  };
  e.finish(*node);
  return out;
}

Tensor te_column_linear(Eager& e, const Tensor& input, const Tensor& weight, const Tensor& bias,
                        const ParallelLinear& module) {
  const Tensor rows = rows_of(e, input);
  Tensor out = column_product(e, input, rows, weight, module);
  Node* node = e.history("_LinearBackward", {&input, &weight, &bias}, {&out});
  if (node == nullptr) return out;
  node->save(rows);
  node->save(weight);
  node->apply = [module, sizes = input.sizes()](Eager& eager, Node& n, Grads& g, Grads& result) {
    ColumnGrads grads =
        column_gradients(eager, g[0], n.saved[0], n.saved[1], n.needs(1), n.needs(2), module);
    result[0] = view(eager, grads.rows, sizes);
    result[1] = std::move(grads.weight);
    result[2] = std::move(grads.bias);
  };
  e.finish(*node);
  return out;
}

Tensor te_row_linear(Eager& e, const Tensor& input, const Tensor& weight,
                     const ParallelLinear& module) {
  const Tensor rows = rows_of(e, input);
  Tensor out = reduced(e, product(e, rows, weight.size(0), weight), module);
  out = as_sequences(e, out, input.size(1));
  Node* node = e.history("_LinearBackward", {&input, &weight}, {&out});
  if (node == nullptr) return out;
  node->save(rows);
  node->save(weight);
  node->apply = [module, input_sizes = input.sizes()](Eager& eager, Node& n, Grads& g,
                                                      Grads& result) {
    Tensor grad = rows_of(eager, contiguous(eager, g[0]));
    if (gathers(module)) grad = gathered_rows(eager, grad, module.ranks);
    const Tensor& matrix = n.saved[1];
    if (n.needs(0)) {
      result[0] = view(eager, product(eager, grad, matrix.size(1), matrix), input_sizes);
    }
    if (n.needs(1)) result[1] = weight_gradient(eager, matrix, grad, n.saved[0], module);
  };
  e.finish(*node);
  return out;
}

Tensor te_grouped_linear(Eager& e, const Tensor& rows, std::span<const Tensor> weights,
                         const ParallelLinear& module) {
  Tensor out = product(e, rows, weights[0].size(0), weights[0]);
  std::vector<Tensor> inputs{rows};
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  Node* node = e.history("_GroupedLinearBackward", inputs, std::span(&out, 1));
  if (node == nullptr) return out;
  for (const Tensor& tensor : inputs) node->save(tensor);
  node->apply = [module](Eager& eager, Node& n, Grads& g, Grads& result) {
    const Tensor grad = contiguous(eager, g[0]);
    if (n.needs(0)) result[0] = product(eager, grad, n.saved[1].size(1), n.saved[1]);
    for (size_t i = 1; i < n.saved.size(); ++i) {
      if (!n.needs(i)) continue;
      if (!module.fused_accumulation) {
        result[i] = eager.empty(n.saved[i].sizes(), n.saved[i].dtype());
      }
    }
    eager.kernel(OpKind::mm, 2 * elements_of(grad) * static_cast<double>(n.saved[0].size(1)),
                 grad.bytes() + n.saved[0].bytes(), n.saved[1].bytes(), grad.dtype());
  };
  e.finish(*node);
  return out;
}

Tensor te_norm(Eager& e, const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const Tensor rows = rows_of(e, input);
  Normed normed = normalize(e, rows, static_cast<bool>(bias));
  Tensor out = e.alias(normed.out, input.sizes(), contiguous_strides(input.sizes()));
  out->base = Tensor();
  Node* node =
      e.history("_OperationFuserAutogradFunctionBackward", {&input, &weight, &bias}, {&out});
  if (node == nullptr) return out;
  for (const Tensor& tensor : {rows, weight, normed.mean, normed.rstd}) node->save(tensor);
  node->apply = [has_bias = static_cast<bool>(bias)](Eager& eager, Node& n, Grads& g,
                                                     Grads& result) {
    normalize_backward(eager, n.saved[0], n.saved[1], has_bias, result);
    result[0] = view(eager, result[0], g[0].sizes());
  };
  e.finish(*node);
  return out;
}

Tensor te_rotary(Eager& e, const Tensor& x, const Tensor& angles) {
  Tensor out = e.empty(x.sizes(), x.dtype());
  e.kernel(OpKind::te_rotary, 3 * elements_of(x), x.bytes(), out.bytes());
  if (Node* node = e.history("FusedRoPEFuncBackward", {&x}, {&out})) {
    node->save(angles);
    node->apply = [](Eager& eager, Node&, Grads& g, Grads& result) {
      result[0] = eager.empty(g[0].sizes(), g[0].dtype());
      eager.kernel(OpKind::te_rotary, 3 * elements_of(g[0]), g[0].bytes(), g[0].bytes());
    };
    e.finish(*node);
  }
  return out;
}

Tensor te_causal_softmax(Eager& e, const Tensor& scores) {
  Tensor out = e.empty(scores.sizes(), scores.dtype());
  e.kernel(OpKind::softmax, kSoftmaxFlops * elements_of(scores), scores.bytes(), out.bytes());
  if (Node* node = e.history("ScaledAlignedCausalMaskedSoftmaxBackward", {&scores}, {&out})) {
    node->save(out);
    node->apply = [](Eager& eager, Node&, Grads& g, Grads& result) {
      result[0] = contiguous(eager, g[0]);
      eager.kernel(OpKind::softmax, kSoftmaxFlops * elements_of(result[0]), 2 * result[0].bytes(),
                   result[0].bytes());
    };
    e.finish(*node);
  }
  return out;
}

}  // namespace headroom::op
