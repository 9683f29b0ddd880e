#include "operator/permuted.h"

#include "base/units.h"
#include "operator/tensor.h"

namespace headroom::op {

namespace {

constexpr int kNone = -1;

// Of those with more than one element, the last where several have the least stride.
int innermost(const Dims& sizes, const Dims& strides) {
  int found = kNone;
  int64_t least = INT64_MAX;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] <= 1 || strides[dim] > least) continue;
    least = strides[dim];
    found = static_cast<int>(dim);
  }
  return found;
}

// The dimension with these strides, along which a run goes on in both layouts.
int continuation(const Dims& sizes, const Dims& from, const Dims& to, int64_t read,
                 int64_t written) {
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] > 1 && from[dim] == read && to[dim] == written) return static_cast<int>(dim);
  }
  return kNone;
}

// Elements that are side by side in `to`, and a stride apart in `from`; 0 where they are side by
// side in both.
int64_t strided_run(const Dims& sizes, const Dims& from, const Dims& to) {
  const int inner = innermost(sizes, to);
  if (inner == kNone || inner == innermost(sizes, from)) return 0;
  const auto at = static_cast<size_t>(inner);
  int64_t run = sizes[at];
  for (size_t turn = 1; turn < sizes.size(); ++turn) {
    const auto read = checked_multiply(run, from[at]);
    const auto written = checked_multiply(run, to[at]);
    if (!read || !written) break;
    const int next = continuation(sizes, from, to, *read, *written);
    if (next == kNone) break;
    run *= sizes[static_cast<size_t>(next)];
  }
  return run;
}

Permuted permuted(const Tensor& from, const Dims& to) {
  const int64_t run = strided_run(from.sizes(), from.strides(), to);
  return run > 0 ? Permuted{from.bytes(), run} : Permuted{};
}

}  // namespace

Permuted permuted_into(const Tensor& from, const Tensor& to) {
  return permuted(from, to.strides());
}

Permuted permuted_into_rows(const Tensor& from) {
  return permuted(from, contiguous_strides(from.sizes()));
}

}  // namespace headroom::op
