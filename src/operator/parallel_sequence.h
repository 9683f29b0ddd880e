// A tensor-parallel rank's part of the sequence, as PyTorch's DTensor gathers and scatters it:
// parts come rank by rank, and lie side by side in dimension 1 after one more copy. Internal to
// operators.
//
// Source: torch/distributed/_functional_collectives.py (all_gather_single, reduce_scatter_single)
// (PyTorch 2.13).
#pragma once

#include "operator/eager.h"

namespace headroom::op {

// [batch, part, ...] as [batch, part * ranks, ...], without history.
[[nodiscard]] Tensor gathered_sequence(Eager& e, const Tensor& part, int64_t ranks);
// The sum over the ranks, of which each has its part. Without history.
[[nodiscard]] Tensor scattered_sequence(Eager& e, const Tensor& whole, int64_t ranks);

}  // namespace headroom::op
