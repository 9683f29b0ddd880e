#include "operator/transformer_engine_fp8.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "operator/transformer_engine_parts.h"

namespace headroom::op {

namespace {

// A tensor [n, k] in FP8, for products that read it by rows and, where it is kept twice, [k, n] for
// those that read it by columns. One scale for both stands by rows.
struct Fp8Tensor {
  Tensor rows, columns, row_scale, column_scale;

  [[nodiscard]] Dims sizes() const {
    return rows ? rows.sizes() : Dims{columns.size(1), columns.size(0)};
  }
};

// By what it is going to be read.
struct Use {
  bool rows = true;
  bool columns = false;
};

Fp8Tensor empty_fp8(Eager& e, const Dims& sizes, Use use, const ParallelLinear& module) {
  const bool one_scale = has_one_scale(module.fp8);
  const bool twice = keeps_fp8_twice(module.fp8, e.environment().compute_capability);
  const Fp8Scales scales = fp8_scales(module.fp8, sizes[0], sizes[1], false);
  Fp8Tensor out;
  if (use.rows || one_scale) {
    out.rows = e.empty(sizes, DType::f8);
    out.row_scale = e.empty({scales.by_rows}, DType::u8);
  }
  if (use.columns && twice) {
    out.columns = e.empty({sizes[1], sizes[0]}, DType::f8);
    if (!one_scale) out.column_scale = e.empty({scales.by_columns}, DType::u8);
  }
  return out;
}

int64_t bytes_of(const Fp8Tensor& tensor) {
  return (tensor.rows ? tensor.rows.bytes() : 0) + (tensor.columns ? tensor.columns.bytes() : 0);
}

// From `source` into it, both ways at once.
void cast(Eager& e, const Tensor& source, const Fp8Tensor& to) {
  row_kernel(e, OpKind::quantize, source, 1, source.bytes(), bytes_of(to));
}

Fp8Tensor quantized(Eager& e, const Tensor& source, Use use, const ParallelLinear& module) {
  Fp8Tensor out = empty_fp8(e, source.sizes(), use, module);
  if (module.fp8 == Fp8Recipe::tensorwise) {
    row_kernel(e, OpKind::amax, source, 1, source.bytes(), 0);
  }
  cast(e, source, out);
  return out;
}

// What the weight's gradient will be made of, once forward is done with the rows.
void drop_rows(Fp8Tensor& tensor) {
  if (!tensor.columns) return;
  tensor.rows = Tensor();
  if (tensor.column_scale) tensor.row_scale = Tensor();
}

void save(Node& node, const Fp8Tensor& tensor) {
  for (const Tensor& part : {tensor.rows, tensor.columns, tensor.row_scale, tensor.column_scale}) {
    node.save(part);
  }
}

constexpr size_t kSavedOfInput = 4;
Fp8Tensor saved_in(const Node& node) {
  return {node.saved[0], node.saved[1], node.saved[2], node.saved[3]};
}

// Columns of what has its rows alone, under one scale.
void transpose_rows(Eager& e, Fp8Tensor& tensor) {
  if (tensor.columns || !keeps_fp8_twice(Fp8Recipe::delayed, e.environment().compute_capability)) {
    return;
  }
  tensor.columns = e.empty({tensor.rows.size(1), tensor.rows.size(0)}, DType::f8);
  e.kernel(OpKind::clone, 0, tensor.rows.bytes(), tensor.columns.bytes());
}

struct Gathered {
  Fp8Tensor whole;
  Tensor interleaved;  // columns as they came, until they are put in order
};

// Under one scale rows alone are sent, and transposed by who needs columns; else either by itself.
Gathered gathered(Eager& e, const Fp8Tensor& part, Use use, const ParallelLinear& module) {
  GradMode no_grad(e, false);
  const Dims sizes = part.sizes();
  Gathered all;
  all.whole = empty_fp8(e, {sizes[0] * module.ranks, sizes[1]}, use, module);
  const bool one_scale = has_one_scale(module.fp8);
  if (one_scale) all.whole.row_scale = part.row_scale;
  const bool sends_columns = use.columns && !one_scale;
  if (sends_columns && module.fp8 == Fp8Recipe::blockwise) {
    all.interleaved = e.empty(all.whole.columns.sizes(), DType::f8);
  }
  if (all.whole.rows) e.collective(OpKind::all_gather, part.rows.bytes(), all.whole.rows.bytes());
  if (sends_columns) {
    e.collective(OpKind::all_gather, part.columns.bytes(), all.whole.columns.bytes());
  } else if (all.whole.columns) {
    e.kernel(OpKind::clone, 0, all.whole.rows.bytes(), all.whole.columns.bytes());
  }
  return all;
}

// rows [n, k] by a matrix of n columns: [n, m], in the weight's own type.
Tensor product(Eager& e, const Fp8Tensor& input, int64_t columns, const Tensor& weight) {
  Tensor out = e.empty({input.rows.size(0), columns}, weight.dtype());
  e.kernel({.kind = OpKind::mm,
            .flops = 2 * elements_of(input.rows) * static_cast<double>(columns),
            .bytes_read = input.rows.bytes() + weight.elements(),
            .bytes_written = out.bytes(),
            .element_bytes = 1,
            .rows = input.rows.size(0)});
  return out;
}

// The weight's gradient, of so many rows; undefined where it is added to a buffer.
Tensor weight_gradient(Eager& e, const Tensor& weight, int64_t rows, const ParallelLinear& module) {
  Tensor out;
  if (!module.fused_accumulation) out = e.empty(weight.sizes(), weight.dtype());
  e.kernel({.kind = OpKind::mm,
            .flops = 2 * elements_of(weight) * static_cast<double>(rows),
            .bytes_read = rows * (weight.size(0) + weight.size(1)),
            .bytes_written = weight.bytes(),
            .element_bytes = 1});
  return out;
}

// A column parallel layer's product, of this rank's rows or, where ranks gather them, of all.
Tensor column_product(Eager& e, const Fp8Tensor& rows, int64_t batch, const Tensor& weight,
                      const ParallelLinear& module) {
  Fp8Tensor whole = gathers(module) ? gathered(e, rows, {}, module).whole : rows;
  const Tensor out = product(e, whole, weight.size(0), weight);
  whole = {};
  return as_sequences(e, out, batch);
}

// What ranks gather of an input for the weight's gradient.
Use of_gathered_input(const ParallelLinear& module) {
  const bool one_scale = has_one_scale(module.fp8);
  return {.rows = one_scale, .columns = !one_scale};
}

// What forward makes of an input that is kept: columns too, unless rows are gathered in backward.
Use of_input(const Eager& e, bool is_gathered, const ParallelLinear& module) {
  const bool keeps_rows = is_gathered && has_one_scale(module.fp8);
  return {.columns = e.grad_enabled() && !module.keeps_original && !keeps_rows};
}

struct ColumnGrads {
  Tensor rows, weight, bias;
  Tensor output, sum;  // named until the module's backward is done
  Fp8Tensor quantized;
};

ColumnGrads column_gradients(Eager& e, const Tensor& output_grad, const Fp8Tensor& input,
                             const Tensor& weight, bool wants_weight, bool wants_bias,
                             const ParallelLinear& module) {
  ColumnGrads grads;
  grads.output = rows_of(e, contiguous(e, output_grad));
  if (wants_bias) grads.bias = e.empty({weight.size(0)}, weight.dtype());
  grads.quantized = quantized(e, grads.output, {.columns = true}, module);
  Gathered whole{input, {}};
  if (gathers(module)) whole = gathered(e, input, of_gathered_input(module), module);
  grads.sum = product(e, grads.quantized, weight.size(1), weight);
  grads.rows = reduced(e, grads.sum, module);
  if (!wants_weight) return grads;
  whole.interleaved = Tensor();
  if (has_one_scale(module.fp8)) transpose_rows(e, whole.whole);
  grads.weight = weight_gradient(e, weight, grads.quantized.rows.size(0), module);
  // clear_tensor_data, of what ranks with parts of a sequence quantized.
  if (module.sequence_parallel) grads.quantized = {};
  return grads;
}

struct Normed {
  Fp8Tensor out;
  Tensor mean, rstd;
};

// Delayed scales are known before, so that the norm's kernel writes in FP8; else it writes in the
// model's type and finds the largest value, and what it wrote is quantized.
Normed normalize(Eager& e, const Tensor& rows, bool has_mean, const ParallelLinear& module) {
  Normed normed;
  if (has_mean) normed.mean = e.empty({rows.size(0)}, DType::f32);
  normed.rstd = e.empty({rows.size(0)}, DType::f32);
  normed.out = empty_fp8(e, rows.sizes(), of_input(e, gathers(module), module), module);
  if (module.fp8 == Fp8Recipe::delayed) {
    row_kernel(e, OpKind::layer_norm, rows, kTeNormFlops, rows.bytes(), rows.elements());
    if (normed.out.columns) e.kernel(OpKind::clone, 0, rows.elements(), rows.elements());
    return normed;
  }
  const Tensor plain = e.empty(rows.sizes(), rows.dtype());
  row_kernel(e, OpKind::layer_norm, rows, kTeNormFlops, rows.bytes(), rows.bytes());
  cast(e, plain, normed.out);
  return normed;
}

}  // namespace

Tensor te_fp8_norm_linear(Eager& e, const Tensor& input, const Tensor& norm_weight,
                          const Tensor& norm_bias, const Tensor& weight, const Tensor& bias,
                          const ParallelLinear& module) {
  const Tensor rows = rows_of(e, input);
  Normed normed = normalize(e, rows, static_cast<bool>(norm_bias), module);
  Tensor out = column_product(e, normed.out, input.size(1), weight, module);
  Node* node = e.history("_LayerNormLinearBackward",
                         {&input, &norm_weight, &norm_bias, &weight, &bias}, {&out});
  if (node == nullptr) return out;
  drop_rows(normed.out);
  save(*node, normed.out);
  for (const Tensor& tensor : {rows, weight, norm_weight, normed.mean, normed.rstd}) {
    node->save(tensor);
  }
  node->apply = [module, has_norm_bias = static_cast<bool>(norm_bias)](Eager& eager, Node& n,
                                                                       Grads& g, Grads& result) {
    constexpr size_t kRows = kSavedOfInput;
    ColumnGrads grads = column_gradients(eager, g[0], saved_in(n), n.saved[kRows + 1], n.needs(3),
                                         n.needs(4), module);
    result[3] = std::move(grads.weight);
    result[4] = std::move(grads.bias);
    normalize_backward(eager, n.saved[kRows], n.saved[kRows + 2], has_norm_bias, result);
    const int64_t batch = std::max<int64_t>(n.outputs[0].sizes[1], 1);
    result[0] = view(eager, result[0], {result[0].size(0) / batch, batch, result[0].size(1)});
  };
  e.finish(*node);
  return out;
}

namespace {

// What a module keeps of its input: as it came, or what backward needs of it in FP8.
void save_input(Node& node, const Tensor& rows, Fp8Tensor quantized, const ParallelLinear& module) {
  if (module.keeps_original) {
    node.save(rows);
    for (size_t i = 1; i < kSavedOfInput; ++i) node.save(Tensor());
    return;
  }
  drop_rows(quantized);
  save(node, quantized);
}

// As it was saved, or quantized again.
Fp8Tensor input_for_backward(Eager& e, const Node& node, bool is_gathered,
                             const ParallelLinear& module) {
  if (!module.keeps_original) return saved_in(node);
  const bool rows_alone = is_gathered && has_one_scale(module.fp8);
  return quantized(e, node.saved[0], {.rows = has_one_scale(module.fp8), .columns = !rows_alone},
                   module);
}

}  // namespace

Tensor te_fp8_column_linear(Eager& e, const Tensor& input, const Tensor& weight, const Tensor& bias,
                            const ParallelLinear& module) {
  const Tensor rows = rows_of(e, input);
  Fp8Tensor own = quantized(e, rows, of_input(e, gathers(module), module), module);
  Tensor out = column_product(e, own, input.size(1), weight, module);
  Node* node = e.history("_LinearBackward", {&input, &weight, &bias}, {&out});
  if (node == nullptr) return out;
  save_input(*node, rows, std::move(own), module);
  node->save(weight);
  node->apply = [module, sizes = input.sizes()](Eager& eager, Node& n, Grads& g, Grads& result) {
    const Fp8Tensor kept = input_for_backward(eager, n, gathers(module), module);
    ColumnGrads grads =
        column_gradients(eager, g[0], kept, n.saved[kSavedOfInput], n.needs(1), n.needs(2), module);
    result[0] = view(eager, grads.rows, sizes);
    result[1] = std::move(grads.weight);
    result[2] = std::move(grads.bias);
  };
  e.finish(*node);
  return out;
}

Tensor te_fp8_row_linear(Eager& e, const Tensor& input, const Tensor& weight,
                         const ParallelLinear& module) {
  const Tensor rows = rows_of(e, input);
  Fp8Tensor own = quantized(e, rows, of_input(e, false, module), module);
  Tensor out = reduced(e, product(e, own, weight.size(0), weight), module);
  out = as_sequences(e, out, input.size(1));
  Node* node = e.history("_LinearBackward", {&input, &weight}, {&out});
  if (node == nullptr) return out;
  save_input(*node, rows, std::move(own), module);
  node->save(weight);
  node->apply = [module, input_sizes = input.sizes()](Eager& eager, Node& n, Grads& g,
                                                      Grads& result) {
    const Tensor output = rows_of(eager, contiguous(eager, g[0]));
    const bool rows_alone = gathers(module) && has_one_scale(module.fp8);
    Fp8Tensor grad = quantized(eager, output, {.columns = !rows_alone}, module);
    if (gathers(module)) grad = gathered(eager, grad, {.columns = true}, module).whole;
    const Fp8Tensor kept = input_for_backward(eager, n, false, module);
    const Tensor& matrix = n.saved[kSavedOfInput];
    if (n.needs(0)) {
      result[0] = view(eager, product(eager, grad, matrix.size(1), matrix), input_sizes);
    }
    if (n.needs(1)) result[1] = weight_gradient(eager, matrix, grad.rows.size(0), module);
  };
  e.finish(*node);
  return out;
}

// Each group's rows are quantized by themselves; together they take what they would as one.
Tensor te_fp8_grouped_linear(Eager& e, const Tensor& rows, std::span<const Tensor> weights,
                             const ParallelLinear& module) {
  Fp8Tensor own = quantized(e, rows, of_input(e, false, module), module);
  Tensor out = product(e, own, weights[0].size(0), weights[0]);
  std::vector<Tensor> inputs{rows};
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  Node* node = e.history("_GroupedLinearBackward", inputs, std::span(&out, 1));
  if (node == nullptr) return out;
  drop_rows(own);
  save(*node, own);
  for (const Tensor& weight : weights) node->save(weight);
  node->apply = [module](Eager& eager, Node& n, Grads& g, Grads& result) {
    const Tensor output = contiguous(eager, g[0]);
    const Fp8Tensor grad = quantized(eager, output, {.columns = true}, module);
    const Tensor& first = n.saved[kSavedOfInput];
    if (n.needs(0)) result[0] = product(eager, grad, first.size(1), first);
    for (size_t i = kSavedOfInput; i < n.saved.size(); ++i) {
      const size_t input = i - kSavedOfInput + 1;
      if (!n.needs(input) || module.fused_accumulation) continue;
      result[input] = eager.empty(n.saved[i].sizes(), n.saved[i].dtype());
    }
    eager.kernel({.kind = OpKind::mm,
                  .flops = 2 * elements_of(output) * static_cast<double>(first.size(1)),
                  .bytes_read = output.elements() + output.size(0) * first.size(1),
                  .bytes_written = first.bytes(),
                  .element_bytes = 1});
  };
  e.finish(*node);
  return out;
}

}  // namespace headroom::op
