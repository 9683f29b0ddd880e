#include "operator/scratch.h"

#include <algorithm>

namespace headroom::op {

namespace {

constexpr int64_t kIndexBytes = 8;  // indices are int64
constexpr int64_t kFloatBytes = 4;

int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }
int64_t round_up(int64_t value, int64_t to) { return divide_up(value, to) * to; }

// Sums of half types are kept in float32.
int64_t accumulation_bytes(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 ? kFloatBytes : element_size(dtype);
}

}  // namespace

// cub/device/dispatch/dispatch_radix_sort.cuh (one-sweep): the other half of a double buffer for
// keys and values, a histogram a digit place, and look-back cells for each tile.
int64_t radix_sort_pairs_bytes(int64_t count, int64_t key_bytes, int64_t value_bytes) {
  constexpr int64_t kDigits = 256;
  constexpr int64_t kTileItems = 384 * 12;
  constexpr int64_t kAlignment = 256;
  const int64_t histograms = key_bytes * kDigits * kFloatBytes;
  const int64_t look_back = divide_up(count, kTileItems) * kDigits * kFloatBytes;
  return round_up(histograms, kAlignment) + round_up(look_back, kAlignment) +
         round_up(count * key_bytes, kAlignment) + round_up(count * value_bytes, kAlignment);
}

// ATen/native/cuda/Embedding.cu (embedding_dense_backward_cuda) and EmbeddingBackwardKernel.cu. The
// bound on segments is that of pull request 78588 (torch 1.13); the limit of the small kernel
// depends on the device since pull request 137237 (2.6).
EmbeddingBackwardScratch embedding_backward_scratch(const Environment& environment, int64_t indices,
                                                    int64_t rows, int64_t width, DType dtype) {
  constexpr int64_t kRowsPerPart = 10;
  const bool large_limit =
      environment.torch >= Version{2, 6} && environment.compute_capability >= 90;
  EmbeddingBackwardScratch scratch;
  if (indices <= (large_limit ? 4096 : 3072)) return scratch;
  scratch.sorts = true;
  scratch.index_bytes = indices * kIndexBytes;
  scratch.sort_bytes = radix_sort_pairs_bytes(indices, kIndexBytes, kIndexBytes);
  const int64_t segments = std::min(indices, rows);
  const int64_t parts = indices / kRowsPerPart + segments;
  scratch.segment_bytes = segments * kIndexBytes;
  scratch.partial_bytes = parts * kIndexBytes;
  scratch.partial_rows_bytes = parts * width * accumulation_bytes(dtype);
  return scratch;
}

// ATen/native/cuda/Indexing.cu (index_put_with_sort_kernel).
IndexPutScratch index_put_scratch(int64_t indices) {
  return {indices * kIndexBytes, radix_sort_pairs_bytes(indices, kIndexBytes, kIndexBytes)};
}

// ATen/native/transformers/cuda/flash_attn/flash_api.cpp (mha_bwd); flash-attn's csrc/flash_attn
// has the same. Rows are padded to 128. The head size is padded to 32, and beyond 128 to 64 since
// the kernels of flash-attn 2.7 (torch 2.7); the sum is not used in deterministic mode, which is
// off.
FlashBackwardScratch flash_backward_scratch(const Environment& environment,
                                            const AttentionSizes& sizes, DType dtype) {
  const int64_t rows = round_up(sizes.query_length, 128);
  const int64_t head = round_up(sizes.head, 8);
  const bool wide_steps = environment.torch >= Version{2, 7} && head > 128;
  const int64_t head_rounded = round_up(head, wide_steps ? 64 : 32);
  FlashBackwardScratch scratch;
  scratch.row_sums_bytes = sizes.batch * sizes.query_heads * rows * kFloatBytes;
  scratch.query_gradient_bytes =
      sizes.batch * rows * sizes.query_heads * head_rounded * kFloatBytes;
  if (sizes.key_heads != sizes.query_heads) {
    scratch.expanded_bytes =
        sizes.batch * sizes.key_length * sizes.query_heads * head * element_size(dtype);
  }
  return scratch;
}

// ATen/native/transformers/cuda/attention_backward.cu and mem_eff_attention/kernel_backward.h.
// Blocks are 64 x 64 up to a head size of 64 and 128 wide above (the sm80 kernels); half types sum
// the query's gradient in float32 tiles, each with a 16-byte header, and beyond a head size of 128
// also key's and value's. float32 needs no sums, but its delta is computed outside of the kernel.
EfficientBackwardScratch efficient_backward_scratch(const Environment& environment,
                                                    const AttentionSizes& sizes, DType dtype) {
  static_cast<void>(environment);
  const int64_t groups = sizes.batch * sizes.query_heads;
  EfficientBackwardScratch scratch;
  scratch.delta_bytes = groups * sizes.query_length * kFloatBytes;
  if (dtype == DType::f32) {
    scratch.products_bytes = groups * sizes.query_length * sizes.head * kFloatBytes;
    return scratch;
  }
  const int64_t block = sizes.head <= 64 ? 64 : 128;
  constexpr int64_t kHeaderFloats = 4;
  const int64_t tiles = divide_up(sizes.query_length, block) * divide_up(sizes.head, block);
  int64_t floats = tiles * (block * block + kHeaderFloats);
  if (sizes.head > 128) {
    floats += 2 * round_up(sizes.key_length, 64) * round_up(sizes.head, block);
  }
  scratch.workspace_bytes = groups * round_up(floats, 4) * kFloatBytes;
  return scratch;
}

// ATen/native/cuda/layer_norm_kernel.cu (ConfigureAndLaunchGammaBetaBackwardKernel, since
// torch 2.8): many rows and few columns are summed in two passes. Before, one pass did all.
int64_t norm_backward_partial_bytes(const Environment& environment, int64_t rows, int64_t width,
                                    DType dtype) {
  constexpr int64_t kWarp = 32;
  constexpr int64_t kRowsPerBlock = 32;
  constexpr int64_t kGridMax = 64 * 1024 / 2;
  const bool two_passes = environment.torch >= Version{2, 8} && rows > 64 * 1024 &&
                          width / kWarp < environment.multiprocessors / 2;
  if (!two_passes) return 0;
  const int64_t columns = divide_up(width, kWarp);
  const int64_t blocks = std::min(kGridMax / columns, divide_up(rows, kRowsPerBlock));
  return blocks * width * element_size(dtype);
}

// triangular_solve_kernel in ATen/native/cuda/linalg/BatchLinearAlgebra.cpp chooses; the addresses
// are an int64 each (get_device_pointers in BatchLinearAlgebraLibBlas.cpp).
int64_t triangular_solve_pointer_bytes(const Tensor& matrices) {
  const int64_t n = matrices.size(-1);
  if (matrices.elements() == 0) return 0;
  const int64_t count = matrices.elements() / (n * n);
  return count <= 8 && n >= 64 ? 0 : count * 8;
}

// ATen/native/cuda/ForeachReduceOp.cu; kChunkSize of MultiTensorApply.cuh.
int64_t foreach_norm_bytes(int64_t tensors, int64_t largest_elements, DType dtype) {
  constexpr int64_t kChunk = 65536;
  return tensors * divide_up(largest_elements, kChunk) * accumulation_bytes(dtype);
}

namespace {

int64_t threads_per_multiprocessor(int compute_capability) {
  switch (compute_capability) {
    case 75:
      return 1024;
    case 86:
    case 87:
    case 89:
    case 120:
    case 121:
      return 1536;
    default:
      return 2048;
  }
}

// What a reduction looks like to TensorIterator: how much is added for how many outputs, and which
// of the two lies along the fastest dimension.
struct ReductionShape {
  int64_t outputs = 1;
  int64_t inputs = 1;  // for each output
  bool along_fastest = true;
  bool is_dense = false;      // the fastest dimension has a stride of one
  int64_t output_vector = 1;  // outputs that one thread loads at once
};

ReductionShape reduction_shape(const Tensor& input,
                               const InlineVector<uint8_t, kDimsMax>& is_reduced) {
  constexpr int64_t kNone = INT64_MAX;
  ReductionShape shape;
  int64_t reduced_stride = kNone;
  int64_t kept_stride = kNone;
  int64_t kept_extent = 1;
  for (size_t i = 0; i < input.sizes().size(); ++i) {
    const int64_t size = input.sizes()[i];
    const int64_t stride = input.strides()[i];
    (is_reduced[i] ? shape.inputs : shape.outputs) *= size;
    if (size == 1) continue;
    int64_t& smallest = is_reduced[i] ? reduced_stride : kept_stride;
    if (stride >= smallest) continue;
    smallest = stride;
    if (!is_reduced[i]) kept_extent = size;
  }
  shape.along_fastest = kept_stride == kNone || reduced_stride < kept_stride;
  shape.is_dense = std::min(reduced_stride, kept_stride) == 1;
  if (shape.along_fastest || !shape.is_dense) return shape;
  shape.output_vector = 4;
  while (kept_extent % shape.output_vector != 0) shape.output_vector /= 2;
  for (size_t i = 0; i < input.sizes().size(); ++i) {
    const int64_t stride = input.strides()[i];
    if (input.sizes()[i] == 1 || stride == 1) continue;
    while (stride % shape.output_vector != 0) shape.output_vector /= 2;
  }
  return shape;
}

int64_t power_of_two_below(int64_t value, int64_t limit) {
  if (value >= limit) return limit;
  int64_t power = 1;
  while (power * 2 <= value) power *= 2;
  return power;
}

}  // namespace

// ATen/native/cuda/Reduce.cuh (ReduceConfig, setReduceConfig). Found out where it matters by
// Liger-Kernel's published peaks of rms_norm on an A100.
ReductionScratch reduction_scratch(const Environment& environment, const Tensor& input,
                                   const InlineVector<uint8_t, kDimsMax>& is_reduced,
                                   int64_t accumulator_bytes) {
  constexpr int64_t kWarp = 32;
  constexpr int64_t kValuesMin = 16;
  constexpr int64_t kValuesMax = 256;
  constexpr int64_t kVectorizedInputs = 4;
  const ReductionShape shape = reduction_shape(input, is_reduced);
  if (shape.outputs == 0 || shape.inputs == 0) return {};
  int64_t dim0 = shape.along_fastest ? shape.inputs : shape.outputs;
  const int64_t dim1 = shape.along_fastest ? shape.outputs : shape.inputs;
  if (shape.along_fastest && shape.is_dense && dim0 >= 128) dim0 /= kVectorizedInputs;
  if (!shape.along_fastest) dim0 /= shape.output_vector;

  const int64_t threads_max = 512 / shape.output_vector;
  const int64_t wide0 = power_of_two_below(dim0, threads_max);
  int64_t width = std::min(wide0, kWarp);
  const int64_t height = std::min(power_of_two_below(dim1, threads_max), threads_max / width);
  width = std::min(wide0, threads_max / height);

  int64_t step_input = shape.along_fastest ? width : 1;
  const int64_t step_output = shape.along_fastest ? 1 : width;
  const int64_t values = divide_up(shape.inputs, step_input);
  // Without a split across a block's rows there is none across blocks.
  if (values < std::min(height * kValuesMin, kValuesMax)) return {};
  step_input *= height;
  const int64_t values_left = divide_up(shape.inputs, step_input);
  const int64_t grid = divide_up(shape.outputs / shape.output_vector, step_output);
  const int64_t blocks =
      threads_per_multiprocessor(environment.compute_capability) / (width * height);
  const int64_t target = environment.multiprocessors * blocks;
  if (values_left < kValuesMax || grid > target) return {};
  const int64_t shares =
      std::max(std::min(divide_up(target, grid), divide_up(values_left, kValuesMin)),
               divide_up(values_left, kValuesMax));
  if (shares <= 1) return {};
  ReductionScratch scratch;
  scratch.staging_bytes = accumulator_bytes * shape.outputs * shares;
  if (!shape.along_fastest) scratch.staging_bytes *= width * shape.output_vector;
  scratch.semaphore_bytes = 4 * grid;
  return scratch;
}

}  // namespace headroom::op
