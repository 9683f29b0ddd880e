// What the operators of Megatron-LM and Transformer Engine share: matrices of rows that the ranks
// of a tensor parallel group hold together. Internal to those operators.
#pragma once

#include <algorithm>

#include "operator/functional.h"

namespace headroom::op {

[[nodiscard]] inline double elements_of(const Tensor& tensor) {
  return static_cast<double>(tensor.elements());
}

// [s, b, f] as [s * b, f], without history.
[[nodiscard]] inline Tensor rows_of(Eager& e, const Tensor& tensor) {
  GradMode no_grad(e, false);
  const int64_t width = tensor.size(-1);
  return view(e, tensor, {width > 0 ? tensor.elements() / width : 0, width});
}

// A kernel that goes along the last dimension of `rows`: so many operations an element.
inline void row_kernel(Eager& e, OpKind kind, const Tensor& rows, double flops, int64_t read,
                       int64_t written) {
  const int64_t width = std::max<int64_t>(rows.size(-1), 1);
  e.kernel({.kind = kind,
            .flops = flops * elements_of(rows),
            .bytes_read = read,
            .bytes_written = written,
            .rows = rows.elements() / width});
}

// The ranks' rows, put together in a new block.
[[nodiscard]] inline Tensor gathered_rows(Eager& e, const Tensor& part, int64_t ranks) {
  Tensor whole = e.empty({part.size(0) * ranks, part.size(1)}, part.dtype());
  e.collective(OpKind::all_gather, part.bytes(), whole.bytes());
  return whole;
}

// The sum over the ranks, of which each has its share of the rows.
[[nodiscard]] inline Tensor scattered_rows(Eager& e, const Tensor& whole, int64_t ranks) {
  Tensor part = e.empty({whole.size(0) / ranks, whole.size(1)}, whole.dtype());
  e.collective(OpKind::reduce_scatter, whole.bytes(), part.bytes());
  return part;
}

}  // namespace headroom::op
