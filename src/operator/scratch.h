// Scratch: what CUDA kernels take from the caching allocator for the length of one call.
//
// Fake tensors never show it, so it is written down here, as sizes in bytes by operator, version
// and device; the operators hold the blocks with Eager::scratch. Every function names the source
// file in PyTorch (or in the flash-attn package) that it was read from. Pure functions, any thread.
//
// Not here because it is nothing: native_dropout, cross entropy, multi_tensor_apply.
// Not here because it is bounded and small: TensorIterator's reductions whose outputs are few (at
// most one block of partial results a multiprocessor: under 2 MiB), scans and top-k (some KiB),
// cuDNN attention's workspace.
#pragma once

#include <cstdint>

#include "operator/eager.h"

namespace headroom::op {

// Temporary storage of cub's radix sort of `count` (key, value) pairs into other buffers.
[[nodiscard]] int64_t radix_sort_pairs_bytes(int64_t count, int64_t key_bytes, int64_t value_bytes);

// embedding_dense_backward: indices are sorted, and rows that belong together are summed in parts.
struct EmbeddingBackwardScratch {
  bool sorts = false;       // few indices go through one kernel without scratch
  int64_t index_bytes = 0;  // of the sorted indices, of their origins, and of a range
  int64_t sort_bytes = 0;
  int64_t segment_bytes = 0;       // one number for each segment (three arrays)
  int64_t partial_bytes = 0;       // one number for each part of a segment
  int64_t partial_rows_bytes = 0;  // the parts' sums, in the accumulation type
};
[[nodiscard]] EmbeddingBackwardScratch embedding_backward_scratch(const Environment& environment,
                                                                  int64_t indices, int64_t rows,
                                                                  int64_t width, DType dtype);

// index_put with accumulation (the backward of indexing): sorted linear indices.
struct IndexPutScratch {
  int64_t index_bytes = 0;  // of each of: linear indices, sorted, origins, a range
  int64_t sort_bytes = 0;
};
[[nodiscard]] IndexPutScratch index_put_scratch(int64_t indices);

struct AttentionSizes {
  int64_t batch = 0;
  int64_t query_heads = 0;
  int64_t key_heads = 0;
  int64_t query_length = 0;
  int64_t key_length = 0;
  int64_t head = 0;
};

// The flash kernel's backward, of PyTorch and of the flash-attn package alike.
struct FlashBackwardScratch {
  int64_t row_sums_bytes = 0;        // float32, one a query row
  int64_t query_gradient_bytes = 0;  // float32 sums of the query's gradient
  int64_t expanded_bytes = 0;  // key's (and as much again value's) gradient for every query head
};
[[nodiscard]] FlashBackwardScratch flash_backward_scratch(const Environment& environment,
                                                          const AttentionSizes& sizes, DType dtype);

// The memory-efficient (CUTLASS) kernel's backward.
struct EfficientBackwardScratch {
  int64_t delta_bytes = 0;  // float32, one a query row
  int64_t products_bytes =
      0;  // grad * out in float32, where the kernel does not compute delta itself
  int64_t workspace_bytes = 0;  // float32 sums of gradients that do not fit registers
};
[[nodiscard]] EfficientBackwardScratch efficient_backward_scratch(const Environment& environment,
                                                                  const AttentionSizes& sizes,
                                                                  DType dtype);

// native_layer_norm's (and rms_norm's) backward over [rows, width]: partial sums of one parameter's
// gradient; 0 where one pass does it.
[[nodiscard]] int64_t norm_backward_partial_bytes(const Environment& environment, int64_t rows,
                                                  int64_t width, DType dtype);

// The batched triangular solver's table of addresses for `matrices` [..., n, n]; 0 where it solves
// one after the other.
[[nodiscard]] int64_t triangular_solve_pointer_bytes(const Tensor& matrices);

// _foreach_norm over a list: one number a chunk of the longest tensor, for every tensor.
[[nodiscard]] int64_t foreach_norm_bytes(int64_t tensors, int64_t largest_elements, DType dtype);

// A reduction by TensorIterator (sum, mean, amax, norm; the sums that undo a broadcast): where few
// threads would have much to add, several blocks share an output and meet in a staging buffer. The
// buffer holds a cell a thread, not an output, so that for the columns of a long matrix it reaches
// more than 100 MiB.
struct ReductionScratch {
  int64_t staging_bytes = 0;
  int64_t semaphore_bytes = 0;
};
// `is_reduced` marks dimensions by position; `accumulator_bytes` is the size of a running value.
[[nodiscard]] ReductionScratch reduction_scratch(const Environment& environment,
                                                 const Tensor& input,
                                                 const InlineVector<uint8_t, kDimsMax>& is_reduced,
                                                 int64_t accumulator_bytes);

// Softmax's backward pass multiplies the gradient that arrives by what was kept, into a block of
// its own, before it reduces; log_softmax's does not. ATen/native/cuda/SoftMax.cu,
// softmax_backward_cuda_out. Of a CPU 0.
[[nodiscard]] inline int64_t softmax_product_bytes(const Environment& environment,
                                                   int64_t gradient_bytes) {
  return environment.compute_capability > 0 ? gradient_bytes : 0;
}

}  // namespace headroom::op
