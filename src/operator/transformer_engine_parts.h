// What Transformer Engine's modules share, whatever type their products are in. Internal to them.
#pragma once

#include <algorithm>

#include "operator/parallel_rows.h"
#include "operator/transformer_engine.h"

namespace headroom::op {

inline constexpr double kTeNormFlops = 8;  // per element

[[nodiscard]] inline bool gathers(const ParallelLinear& module) {
  return module.sequence_parallel && module.ranks > 1;
}

// What the ranks' parts of a sum become: each rank's share of the sequence, or the whole in place.
[[nodiscard]] inline Tensor reduced(Eager& e, const Tensor& sum, const ParallelLinear& module) {
  if (module.ranks <= 1) return sum;
  if (module.sequence_parallel) return scattered_rows(e, sum, module.ranks);
  e.collective(OpKind::all_reduce, sum.bytes(), sum.bytes());
  return sum;
}

// A product's rows [s * b, columns] as [s, b, columns].
[[nodiscard]] inline Tensor as_sequences(Eager& e, const Tensor& rows, int64_t batch) {
  const int64_t b = std::max<int64_t>(batch, 1);
  const Dims sizes{rows.size(0) / b, b, rows.size(1)};
  Tensor out = e.alias(rows, sizes, contiguous_strides(sizes));
  out->base = Tensor();
  return out;
}

// Gradients of the input, the weight and, where there is one, the bias into result[0], [1], [2].
inline void normalize_backward(Eager& e, const Tensor& rows, const Tensor& weight, bool has_bias,
                               Grads& result) {
  result[0] = e.empty(rows.sizes(), rows.dtype());
  result[1] = e.empty(weight.sizes(), weight.dtype());
  if (has_bias) result[2] = e.empty(weight.sizes(), weight.dtype());
  row_kernel(e, OpKind::layer_norm, rows, 2 * kTeNormFlops, 2 * rows.bytes(), rows.bytes());
}

}  // namespace headroom::op
